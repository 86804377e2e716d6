//go:build integration

package seeds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
	"millwright/observe/cache"
	"millwright/test/integration/rig"
)

// applyLoad applies one load of the plan.
func (a *seedRun) applyLoad(s planStep) {
	p := a.pools[s.PoolIndex]
	switch s.Kind {
	case loadScale:
		a.patchPool(p, fmt.Sprintf(`{"spec":{"replicas":%d}}`, s.LoadArgument))
	case loadScaleRepeatedly:
		for _, n := range []int{s.LoadArgument, 1, s.LoadArgument + 1, 2} {
			a.patchPool(p, fmt.Sprintf(`{"spec":{"replicas":%d}}`, n))
			time.Sleep(1500 * time.Millisecond)
		}
	case loadRollOut:
		a.patchPool(
			p,
			fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":"%d"}}}}}`, s.BeginOffset.Milliseconds()),
		)
	case loadDeleteMachine:
		a.applyToPoolMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			if len(m.Finalizers) == 0 {
				return errors.New("its finalizer is not back yet: its instance would be left")
			}
			return testRig.MachineClient.MachineV1alpha1().Machines(a.namespace).Delete(ctx, m.Name, metav1.DeleteOptions{})
		})
	case loadDeleteNode:
		a.applyToPoolMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			node, err := testRig.Kube.CoreV1().Nodes().Get(ctx, cache.NodeNameOfMachine(&m), metav1.GetOptions{})
			if err != nil {
				return err
			}
			// A node that is deleted before it has Millwright's finalizer looks like a node that has not joined yet.
			// The machine of this node then waits for the creation timeout of 20 minutes.
			if !slices.Contains(node.Finalizers, v1alpha1.FinalizerNode) {
				return errors.New("its machine does not know its node yet")
			}
			return testRig.Kube.CoreV1().
				Nodes().
				Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(node.UID))})
		})
	case loadRemoveOwner:
		a.applyToPoolMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			return a.patchMachine(ctx, m.Name, `{"metadata":{"ownerReferences":null}}`)
		})
	case loadRemoveFinalizer:
		a.applyToPoolMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			if m.DeletionTimestamp != nil {
				return nil
			}
			// The patch contains the machine's resourceVersion. Without the resourceVersion, the patch could remove the
			// finalizer of a machine that is deleted in the meantime. Nothing would then delete the machine's instance.
			return a.patchMachine(
				ctx,
				m.Name,
				fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"finalizers":null}}`, m.ResourceVersion),
			)
		})
	case loadRemoveLabel:
		name := ""
		a.applyToPoolMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			name = m.Name
			return a.patchMachine(ctx, m.Name, `{"metadata":{"labels":{"pool":null}}}`)
		})
		time.Sleep(s.Duration)
		if name != "" {
			a.retryUntilDone("delete the machine that left", func(ctx context.Context) error {
				return ignoreNotFound(
					testRig.MachineClient.MachineV1alpha1().Machines(a.namespace).Delete(ctx, name, metav1.DeleteOptions{}),
				)
			})
		}
	case loadPauseRollout:
		a.patchPool(p, `{"spec":{"paused":true}}`)
		time.Sleep(s.Duration)
		a.patchPool(p, `{"spec":{"paused":false}}`)
	case loadPreserveMachine:
		name := ""
		a.applyToPoolMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			name = m.Name
			return a.patchMachine(
				ctx,
				m.Name,
				fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow),
			)
		})
		time.Sleep(s.Duration)
		if name != "" {
			a.retryUntilDone("end the preservation", func(ctx context.Context) error {
				return ignoreNotFound(
					a.patchMachine(ctx, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationPreserve)),
				)
			})
		}
	case loadDeleteInstance:
		a.applyToPoolMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			// If the machine has no provider ID, nothing proves that the node belongs to the machine. In a real
			// cluster, a cloud controller manager would delete this node.
			lone := m.Spec.ProviderID == ""
			// The cloud returns an error if the instance does not exist, or does not exist yet.
			_ = testRig.Cloud.MakeInstanceVanish(
				ctx,
				admin.VanishRequest{Machine: m.Name, DeleteNode: s.LoadArgument%2 == 1 || lone},
			)
			return nil
		})
	case loadOrphanInstance:
		a.orphanInstance(s)
	case loadDeleteSecret:
		secrets := testRig.Kube.CoreV1().Secrets(a.namespace)
		a.retryUntilDone("delete the Secret", func(ctx context.Context) error {
			if err := ignoreNotFound(secrets.Delete(ctx, "small", metav1.DeleteOptions{})); err != nil {
				return err
			}
			_, err := secrets.Patch(
				ctx,
				"small",
				types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`),
				metav1.PatchOptions{},
			)
			return ignoreNotFound(err)
		})
		time.Sleep(s.Duration)
		a.retryUntilDone("restore the Secret", func(ctx context.Context) error {
			_, err := secrets.Create(ctx, rig.NewClassSecret(a.namespace), metav1.CreateOptions{})
			return ignoreAlreadyExists(err) // another load may have created the object
		})
	case loadHandOverDeployment:
		a.handOverDeployment(p)
	case loadRemoveSetOwner:
		a.retryUntilDone("take the owner of a set", func(ctx context.Context) error {
			sets, err := testRig.MachineClient.MachineV1alpha1().
				MachineSets(a.namespace).
				List(ctx, metav1.ListOptions{LabelSelector: "pool=" + p.Name})
			if err != nil || len(sets.Items) == 0 {
				return err
			}
			_, err = testRig.MachineClient.MachineV1alpha1().
				MachineSets(a.namespace).
				Patch(ctx, sets.Items[s.LoadArgument%len(sets.Items)].Name, types.MergePatchType,
					[]byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
			return ignoreNotFound(err)
		})
	case loadStageRollouts:
		a.stageAndApproveRollouts(p, s.Duration)
	default:
		a.t.Errorf("no such load: %s", s.Kind)
	}
}

// orphanInstance deletes a machine and removes the finalizers of machine and node, as an impatient person would.
func (a *seedRun) orphanInstance(s planStep) {
	bare, node := fmt.Appendf(nil, `{"metadata":{"finalizers":null}}`), ""
	a.applyToPoolMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
		instances, err := testRig.Cloud.Instances(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(instances, func(i admin.Instance) bool { return i.Tags.MachineUID == string(m.UID) }) {
			return nil // Millwright does not delete the node of an instance that vanished
		}
		a.watcher.ExpectOrphanedInstance(string(m.UID))
		if err := testRig.MachineClient.MachineV1alpha1().
			Machines(a.namespace).
			Delete(ctx, m.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		node = cache.NodeNameOfMachine(&m)
		return a.patchMachine(ctx, m.Name, string(bare))
	})
	if node == "" {
		return
	}
	a.retryUntilDone("release the node of an orphan", func(ctx context.Context) error {
		_, err := testRig.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, bare, metav1.PatchOptions{})
		return ignoreNotFound(err)
	})
}

// ignoreNotFound returns the error of a request, or nil if the object does not exist.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (a *seedRun) patchPool(p *rig.Pool, patch string) {
	a.deploymentLock.Lock()
	defer a.deploymentLock.Unlock()
	a.retryUntilDone("change "+p.Name, func(ctx context.Context) error {
		_, err := testRig.MachineClient.MachineV1alpha1().
			MachineDeployments(a.namespace).
			Patch(ctx, p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

func (a *seedRun) patchMachine(ctx context.Context, name, patch string) error {
	_, err := testRig.MachineClient.MachineV1alpha1().
		Machines(a.namespace).
		Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// applyToPoolMachine calls do for one machine of a pool. If the pool has no machine, applyToPoolMachine does nothing.
func (a *seedRun) applyToPoolMachine(s planStep, do func(context.Context, v1alpha1.Machine) error) {
	a.retryUntilDone(s.Kind, func(ctx context.Context) error {
		list, err := testRig.MachineClient.MachineV1alpha1().
			Machines(a.namespace).
			List(ctx, metav1.ListOptions{LabelSelector: "pool=" + a.pools[s.PoolIndex].Name})
		if err != nil || len(list.Items) == 0 {
			return err
		}
		slices.SortFunc(
			list.Items,
			func(x, y v1alpha1.Machine) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) },
		)
		return ignoreNotFound(do(ctx, list.Items[s.LoadArgument%len(list.Items)]))
	})
}
