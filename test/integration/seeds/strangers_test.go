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

// elsewhere returns the name of the namespace with the strangers: copies of machines.
func (a *arena) elsewhere() string { return a.namespace + "-copy" }

// visit makes copies of a pool's machines in another namespace, as a test restore does, and for each of them a machine
// with the label of its node, and one with the name of its node. Later the namespace is deleted.
func (a *arena) visit(s planStep) {
	machines := r.Machines.MachineV1alpha1()
	a.persist("make the namespace of strangers", func(ctx context.Context) error {
		if err := made(create(ctx, a.elsewhere())); err != nil {
			return err
		}
		_, err := r.Kube.CoreV1().Secrets(a.elsewhere()).Create(ctx, rig.Credentials(a.elsewhere()), metav1.CreateOptions{})
		if made(err) != nil {
			return err
		}
		_, err = machines.MachineClasses(a.elsewhere()).
			Create(ctx, rig.Class(a.elsewhere(), slowly), metav1.CreateOptions{})
		return made(err)
	})
	a.persist("copy machines", func(ctx context.Context) error {
		list, err := machines.Machines(a.namespace).
			List(ctx, metav1.ListOptions{LabelSelector: "pool=" + a.pools[s.Pool].Name})
		if err != nil {
			return err
		}
		for n, m := range list.Items {
			if m.Spec.ProviderID == "" {
				continue // a copy would get an instance of its own
			}
			node := cache.NodeNameOf(&m)
			copied := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: m.Labels}, Spec: m.Spec}
			strangers := []*v1alpha1.Machine{
				copied,
				bare(fmt.Sprintf("label-%d", n), map[string]string{v1alpha1.LabelNode: node}),
			}
			if node != m.Name {
				strangers = append(strangers, bare(node, nil))
			}
			for _, stranger := range strangers {
				_, err := machines.Machines(a.elsewhere()).Create(ctx, stranger, metav1.CreateOptions{})
				if made(err) != nil {
					return err
				}
			}
		}
		return nil
	})
	time.Sleep(s.For)
	a.persist("delete the namespace of strangers", func(ctx context.Context) error {
		return known(r.Kube.CoreV1().Namespaces().Delete(ctx, a.elsewhere(), metav1.DeleteOptions{}))
	})
}

func create(ctx context.Context, namespace string) error {
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err := r.Kube.CoreV1().Namespaces().Create(ctx, o, metav1.CreateOptions{})
	return err
}

// bare is a machine whose class does not exist: it gets no instance.
func bare(name string, labels map[string]string) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	m.Spec.Class.Kind, m.Spec.Class.Name = "MachineClass", "none"
	return m
}

// visitors returns the strangers that are left long after their namespace was deleted.
func (a *arena) visitors(ctx context.Context) (left []checker.Violation) {
	for begun := time.Now(); a.plan.strangers != nil; {
		_, err := r.Kube.CoreV1().Namespaces().Get(ctx, a.elsewhere(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if time.Since(begun) > calmWithin {
			of := checker.Finding{Check: checker.CheckGone, Object: a.elsewhere(), Saw: "the namespace of strangers"}
			return []checker.Violation{{Finding: of, Since: begun, At: time.Now()}}
		}
		time.Sleep(time.Second)
	}
	return nil
}
