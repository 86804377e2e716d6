//go:build integration

package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
)

// sharedFolderVariable is the environment variable with the folder of the shared stack.
const sharedFolderVariable = "MILLWRIGHT_TEST_STACK"

// sharedStackOptions returns the options of the shared stack. Three options differ from the defaults:
//
//   - Fewer nodes are drained at a time, so that a test can see a queue of drains.
//   - At most 20 s are between two calls after a quota error, so that a test waits less.
//   - A deletion waits longer for volumes, so that the timeout does not end the wait in a slow test.
func sharedStackOptions() stack.Options {
	return stack.Options{Args: map[string][]string{component.Worker: {
		fmt.Sprintf(
			"--max-drains=%d",
			MaxDrains,
		),
		"--resource-exhausted-retry=20s",
		"--pv-detach-timeout=" + VolumeDetachTimeout.String(),
	}}}
}

// VolumeDetachTimeout is the maximum wait of a deletion for volumes on the shared stack.
const VolumeDetachTimeout = 30 * time.Minute

// MaxDrains is the maximum number of nodes that are drained at a time on the shared stack.
const MaxDrains = 50

// MainOnSharedStack runs tests as Main does, on the stack that the environment variable names. The test packages use
// the shared stack one after the other. Each package deletes its machines when its tests end. If the environment
// variable is not set, MainOnSharedStack starts a stack with the same options.
func MainOnSharedStack(m *testing.M, use func(*Rig)) int {
	dir := os.Getenv(sharedFolderVariable)
	if dir == "" {
		return Main(m, sharedStackOptions(), use)
	}
	s, err := stack.Open(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "open the shared stack:", err)
		return 1
	}
	r, err := connectToStack(s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "connect to the shared stack:", err)
		return 1
	}
	use(r)
	code := m.Run()
	if code != 0 {
		r.printLogs(false)
	}
	if err := r.clearStack(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "clear the shared stack:", err)
		return 1
	}
	return code
}

// SharedStack is a stack that several packages use.
type SharedStack struct {
	rig *Rig
	dir string
}

// StartSharedStack starts the shared stack. The caller must call Stop. The stack stops at the latest when this
// process ends.
func StartSharedStack(ctx context.Context) (*SharedStack, error) {
	dir, err := os.MkdirTemp("", "millwright-shared-")
	if err != nil {
		return nil, err
	}
	r, err := StartRig(ctx, dir, sharedStackOptions())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the shared stack: %w", err), os.RemoveAll(dir))
	}
	return &SharedStack{r, dir}, nil
}

// EnvironmentVariable returns the environment variable, as NAME=VALUE, by which MainOnSharedStack finds the stack.
func (s *SharedStack) EnvironmentVariable() string { return sharedFolderVariable + "=" + s.dir }

// Stop stops the stack. Unless ctx has ended, Stop first runs checkOutput, and returns an error if checkOutput
// returns 1.
func (s *SharedStack) Stop(ctx context.Context) error {
	var err error
	if ctx.Err() == nil && s.rig.checkOutput(ctx) != 0 {
		err = errors.New("the processes of the shared stack have written what they must not write")
	}
	return errors.Join(err, s.rig.Stack.Down(context.WithoutCancel(ctx)), os.RemoveAll(s.dir))
}

// clearStack cleans the stack after a package. clearStack starts killed components, removes the faults of the cloud,
// and deletes the namespaces of the tests. After 30 s, clearStack also removes the finalizers of machines, because a
// hook or a preservation may block their deletion.
func (r *Rig) clearStack(ctx context.Context) error {
	for _, name := range component.Names() {
		if err := r.Stack.StartComponent(ctx, name); err != nil {
			return err
		}
	}
	if err := errors.Join(r.Cloud.ClearFaults(ctx), r.Cloud.SetBehaviour(ctx, admin.DefaultBehaviour())); err != nil {
		return err
	}
	own := []string{
		metav1.NamespaceDefault,
		metav1.NamespaceSystem,
		metav1.NamespacePublic,
		corev1.NamespaceNodeLease,
		"millwright",
	}
	began := time.Now()
	var left []string
	err := wait.PollUntilContextTimeout(
		ctx,
		200*time.Millisecond,
		maxConditionWait,
		true,
		func(ctx context.Context) (bool, error) {
			namespaces, err := r.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			left = nil
			for _, n := range namespaces.Items {
				if slices.Contains(own, n.Name) {
					continue
				}
				left = append(left, n.Name)
				if err := r.cleanUpNamespace(ctx, n, time.Since(began) > 30*time.Second); err != nil && !apierrors.IsNotFound(err) {
					return false, err
				}
			}
			return len(left) == 0, nil
		},
	)
	if err != nil {
		return fmt.Errorf("delete the namespaces %s: %w", strings.Join(left, ", "), err)
	}
	return errors.Join(
		r.Cloud.ResetCloud(ctx),
		r.Kube.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
	)
}

// cleanUpNamespace deletes a namespace. In a namespace that is being deleted, cleanUpNamespace also deletes all pods at
// once, without their finalizers and grace periods. If release is true, cleanUpNamespace also removes the finalizers of
// the machines. The machines are then gone without a drain, and their instances stay.
func (r *Rig) cleanUpNamespace(ctx context.Context, namespace corev1.Namespace, release bool) error {
	if namespace.DeletionTimestamp == nil {
		return r.Kube.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{})
	}
	const none = `{"metadata":{"finalizers":null}}`
	pods, err := r.Kube.CoreV1().Pods(namespace.Name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		_, patched := r.Kube.CoreV1().
			Pods(p.Namespace).
			Patch(ctx, p.Name, types.MergePatchType, []byte(none), metav1.PatchOptions{})
		deleted := r.Kube.CoreV1().
			Pods(p.Namespace).
			Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		for _, err := range []error{patched, deleted} {
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	if !release {
		return nil
	}
	machines, err := r.MachineClient.MachineV1alpha1().Machines(namespace.Name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, m := range machines.Items {
		_, err := r.MachineClient.MachineV1alpha1().
			Machines(m.Namespace).
			Patch(ctx, m.Name, types.MergePatchType, []byte(none), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
