//go:build integration

package seeds

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/test/checker"
	"millwright/test/integration/rig"
)

// machineCopyNamespace returns the name of the namespace with the copies of machines.
func (a *seedRun) machineCopyNamespace() string { return a.namespace + "-copy" }

// copyMachines copies a pool's machines into another namespace, as a trial restore of a backup does. For each
// copied machine, copyMachines also creates a machine with the label of the node, and a machine with the name of
// the node. Later copyMachines deletes the namespace.
func (a *seedRun) copyMachines(s planStep) {
	machines := testRig.MachineClient.MachineV1alpha1()
	a.retryUntilDone("make the namespace of strangers", func(ctx context.Context) error {
		if err := ignoreAlreadyExists(createNamespace(ctx, a.machineCopyNamespace())); err != nil {
			return err
		}
		_, err := testRig.Kube.CoreV1().
			Secrets(a.machineCopyNamespace()).
			Create(ctx, rig.NewClassSecret(a.machineCopyNamespace()), metav1.CreateOptions{})
		if ignoreAlreadyExists(err) != nil {
			return err
		}
		_, err = machines.MachineClasses(a.machineCopyNamespace()).
			Create(ctx, rig.NewClass(a.machineCopyNamespace(), slowProviderSpec), metav1.CreateOptions{})
		return ignoreAlreadyExists(err)
	})
	a.retryUntilDone("copy machines", func(ctx context.Context) error {
		list, err := machines.Machines(a.namespace).
			List(ctx, metav1.ListOptions{LabelSelector: "pool=" + a.pools[s.PoolIndex].Name})
		if err != nil {
			return err
		}
		for n, m := range list.Items {
			if m.Spec.ProviderID == "" {
				continue // the copy of a machine without a provider ID would get its own instance
			}
			node := cache.NodeNameOfMachine(&m)
			copied := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: m.Labels}, Spec: m.Spec}
			strangers := []*v1alpha1.Machine{
				copied,
				machineWithoutClass(fmt.Sprintf("label-%d", n), map[string]string{v1alpha1.LabelNode: node}),
			}
			if node != m.Name {
				strangers = append(strangers, machineWithoutClass(node, nil))
			}
			for _, stranger := range strangers {
				_, err := machines.Machines(a.machineCopyNamespace()).Create(ctx, stranger, metav1.CreateOptions{})
				if ignoreAlreadyExists(err) != nil {
					return err
				}
			}
		}
		return nil
	})
	time.Sleep(s.Duration)
	a.retryUntilDone("delete the namespace of strangers", func(ctx context.Context) error {
		return ignoreNotFound(
			testRig.Kube.CoreV1().Namespaces().Delete(ctx, a.machineCopyNamespace(), metav1.DeleteOptions{}),
		)
	})
}

func createNamespace(ctx context.Context, namespace string) error {
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err := testRig.Kube.CoreV1().Namespaces().Create(ctx, o, metav1.CreateOptions{})
	return err
}

// machineWithoutClass returns a machine with a class that does not exist, so the machine gets no instance.
func machineWithoutClass(name string, labels map[string]string) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	m.Spec.Class.Kind, m.Spec.Class.Name = "MachineClass", "none"
	return m
}

// findRemainingCopyNamespace returns a violation if the namespace of the copies still exists long after its deletion.
func (a *seedRun) findRemainingCopyNamespace(ctx context.Context) (left []checker.Violation) {
	for begun := time.Now(); a.plan.copyMachinesLoad != nil; {
		_, err := testRig.Kube.CoreV1().Namespaces().Get(ctx, a.machineCopyNamespace(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if time.Since(begun) > settleTimeout {
			of := checker.Finding{
				Check:       checker.CheckLeftover,
				Object:      a.machineCopyNamespace(),
				Observation: "the namespace of strangers",
			}
			return []checker.Violation{{Finding: of, FirstSeen: begun, ReportTime: time.Now()}}
		}
		time.Sleep(time.Second)
	}
	return nil
}
