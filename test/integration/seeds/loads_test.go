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

// load does one load.
func (a *arena) load(s planStep) {
	p := a.pools[s.Pool]
	switch s.What {
	case loadScale:
		a.patchPool(p, fmt.Sprintf(`{"spec":{"replicas":%d}}`, s.N))
	case loadFlap:
		for _, n := range []int{s.N, 1, s.N + 1, 2} {
			a.patchPool(p, fmt.Sprintf(`{"spec":{"replicas":%d}}`, n))
			time.Sleep(1500 * time.Millisecond)
		}
	case loadRoll:
		a.patchPool(p, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":"%d"}}}}}`, s.At.Milliseconds()))
	case loadDeleteMachine:
		a.onMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			if len(m.Finalizers) == 0 {
				return errors.New("its finalizer is not back yet: its instance would be left")
			}
			return r.Machines.MachineV1alpha1().Machines(a.namespace).Delete(ctx, m.Name, metav1.DeleteOptions{})
		})
	case loadDeleteNode:
		a.onMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			node, err := r.Kube.CoreV1().Nodes().Get(ctx, cache.NodeNameOf(&m), metav1.GetOptions{})
			if err != nil {
				return err
			}
			// Before it has our finalizer, its end looks like a node that has yet to join: the creation timeout ends
			// that, after 20 minutes.
			if !slices.Contains(node.Finalizers, v1alpha1.FinalizerNode) {
				return errors.New("its machine does not know its node yet")
			}
			return r.Kube.CoreV1().
				Nodes().
				Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(node.UID))})
		})
	case loadOwner:
		a.onMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			return a.patchMachine(ctx, m.Name, `{"metadata":{"ownerReferences":null}}`)
		})
	case loadFinalizer:
		a.onMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			if m.DeletionTimestamp != nil {
				return nil
			}
			// With the version that was read: a machine that is deleted in the meantime would lose its instance.
			return a.patchMachine(
				ctx,
				m.Name,
				fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"finalizers":null}}`, m.ResourceVersion),
			)
		})
	case loadLabel:
		name := ""
		a.onMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			name = m.Name
			return a.patchMachine(ctx, m.Name, `{"metadata":{"labels":{"pool":null}}}`)
		})
		time.Sleep(s.For)
		if name != "" {
			a.persist("delete the machine that left", func(ctx context.Context) error {
				return known(r.Machines.MachineV1alpha1().Machines(a.namespace).Delete(ctx, name, metav1.DeleteOptions{}))
			})
		}
	case loadPause:
		a.patchPool(p, `{"spec":{"paused":true}}`)
		time.Sleep(s.For)
		a.patchPool(p, `{"spec":{"paused":false}}`)
	case loadPreserve:
		name := ""
		a.onMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			name = m.Name
			return a.patchMachine(
				ctx,
				m.Name,
				fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow),
			)
		})
		time.Sleep(s.For)
		if name != "" {
			a.persist("end the preservation", func(ctx context.Context) error {
				return known(
					a.patchMachine(ctx, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationPreserve)),
				)
			})
		}
	case loadVanish:
		a.onMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
			// Without a recorded provider ID nothing proves whose the node is: a cloud controller manager deletes it.
			lone := m.Spec.ProviderID == ""
			// The cloud refuses where there is no instance, or not yet.
			_ = r.Cloud.Vanish(ctx, admin.Vanish{Machine: m.Name, DeleteNode: s.N%2 == 1 || lone})
			return nil
		})
	case loadOrphan:
		a.orphan(s)
	case loadSecret:
		secrets := r.Kube.CoreV1().Secrets(a.namespace)
		a.persist("delete the Secret", func(ctx context.Context) error {
			if err := known(secrets.Delete(ctx, "small", metav1.DeleteOptions{})); err != nil {
				return err
			}
			_, err := secrets.Patch(
				ctx,
				"small",
				types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`),
				metav1.PatchOptions{},
			)
			return known(err)
		})
		time.Sleep(s.For)
		a.persist("restore the Secret", func(ctx context.Context) error {
			_, err := secrets.Create(ctx, rig.Credentials(a.namespace), metav1.CreateOptions{})
			return made(err) // two loads may overlap
		})
	case loadHandOver:
		a.handOver(p)
	case loadOwnerOfSet:
		a.persist("take the owner of a set", func(ctx context.Context) error {
			sets, err := r.Machines.MachineV1alpha1().
				MachineSets(a.namespace).
				List(ctx, metav1.ListOptions{LabelSelector: "pool=" + p.Name})
			if err != nil || len(sets.Items) == 0 {
				return err
			}
			_, err = r.Machines.MachineV1alpha1().
				MachineSets(a.namespace).
				Patch(ctx, sets.Items[s.N%len(sets.Items)].Name, types.MergePatchType,
					[]byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
			return known(err)
		})
	case loadGate:
		a.gate(p, s.For)
	default:
		a.t.Errorf("no such load: %s", s.What)
	}
}

// orphan deletes a machine and takes the finalizers of machine and node, as a person without patience would.
func (a *arena) orphan(s planStep) {
	bare, node := fmt.Appendf(nil, `{"metadata":{"finalizers":null}}`), ""
	a.onMachine(s, func(ctx context.Context, m v1alpha1.Machine) error {
		instances, err := r.Cloud.Instances(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(instances, func(i admin.Instance) bool { return i.Tags.MachineUID == string(m.UID) }) {
			return nil // nobody deletes the node of an instance that vanished
		}
		a.watcher.Excuse(string(m.UID))
		if err := r.Machines.MachineV1alpha1().Machines(a.namespace).Delete(ctx, m.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		node = cache.NodeNameOf(&m)
		return a.patchMachine(ctx, m.Name, string(bare))
	})
	if node == "" {
		return
	}
	a.persist("release the node of an orphan", func(ctx context.Context) error {
		_, err := r.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, bare, metav1.PatchOptions{})
		return known(err)
	})
}

// known returns the error of a request, or nil if the object is gone.
func known(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (a *arena) patchPool(p *rig.Pool, patch string) {
	a.changing.Lock()
	defer a.changing.Unlock()
	a.persist("change "+p.Name, func(ctx context.Context) error {
		_, err := r.Machines.MachineV1alpha1().
			MachineDeployments(a.namespace).
			Patch(ctx, p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

func (a *arena) patchMachine(ctx context.Context, name, patch string) error {
	_, err := r.Machines.MachineV1alpha1().
		Machines(a.namespace).
		Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// onMachine does something to one machine of a pool; nothing if there is none.
func (a *arena) onMachine(s planStep, do func(context.Context, v1alpha1.Machine) error) {
	a.persist(s.What, func(ctx context.Context) error {
		list, err := r.Machines.MachineV1alpha1().
			Machines(a.namespace).
			List(ctx, metav1.ListOptions{LabelSelector: "pool=" + a.pools[s.Pool].Name})
		if err != nil || len(list.Items) == 0 {
			return err
		}
		slices.SortFunc(
			list.Items,
			func(x, y v1alpha1.Machine) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) },
		)
		return known(do(ctx, list.Items[s.N%len(list.Items)]))
	})
}
