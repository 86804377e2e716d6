package drain

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/observe/cache"
	capidrain "millwright/observe/capi/drain"
	observe "millwright/observe/drain"
	"millwright/starter/kubecli"
)

// findMachine reads a Machine of Millwright, or else a Machine of Cluster API whose node Millwright drains. findMachine
// returns a Cluster API Machine in the form of a Millwright Machine.
func findMachine(ctx context.Context, clients kubecli.Clients, key types.NamespacedName) (*v1alpha1.Machine, error) {
	m, err := kubecli.FindObject(
		ctx,
		clients,
		request.KindMachine,
		key,
		clients.MachineClient.MachineV1alpha1().Machines(key.Namespace).Get,
	)
	if !apierrors.IsNotFound(err) {
		return m, err
	}
	served, otherErr := clients.ClusterAPI.IsServed()
	switch {
	case otherErr != nil:
		return nil, otherErr
	case !served:
		return nil, err
	}
	other, otherErr := clients.ClusterAPI.Client().Machines(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(otherErr):
		return nil, err
	case otherErr != nil:
		return nil, fmt.Errorf("get machine %s of Cluster API: %w", key, otherErr)
	case !capidrain.IsDrainedByMillwright(other):
		return nil, fmt.Errorf(
			"machine %s is of Cluster API, which drains its node itself: see the condition Deleting (kubectl describe machines.cluster.x-k8s.io -n %s %s)",
			key,
			key.Namespace,
			key.Name,
		)
	}
	return capidrain.ToMillwrightMachine(other), nil
}

// listMachines returns the Machines of Millwright in a namespace or in all namespaces, and the Machines of Cluster API
// whose nodes Millwright drains. Machines of Cluster API are omitted if the user may not list them.
func listMachines(ctx context.Context, clients kubecli.Clients, namespace string) ([]v1alpha1.Machine, error) {
	found, err := clients.MachineClient.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	if served, err := clients.ClusterAPI.IsServed(); err != nil || !served {
		return found.Items, err
	}
	others, err := clients.ClusterAPI.Client().Machines(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return found.Items, nil
	case err != nil:
		return nil, fmt.Errorf("list machines of Cluster API: %w", err)
	}
	for _, m := range cache.PointersToItems(others.Items) {
		if capidrain.IsDrainedByMillwright(m) {
			found.Items = append(found.Items, *capidrain.ToMillwrightMachine(m))
		}
	}
	return found.Items, nil
}

// patchMachine patches a machine that findMachine returned.
func patchMachine(ctx context.Context, clients kubecli.Clients, m *v1alpha1.Machine, data []byte) (err error) {
	if observe.IsClusterAPIMachine(m) {
		_, err = clients.ClusterAPI.Client().
			Machines(m.Namespace).
			Patch(ctx, m.Name, types.MergePatchType, data, metav1.PatchOptions{})
	} else {
		_, err = clients.MachineClient.MachineV1alpha1().
			Machines(m.Namespace).
			Patch(ctx, m.Name, types.MergePatchType, data, metav1.PatchOptions{})
	}
	return err
}

// noEffectText returns why a command has no effect on a Cluster API Machine. noEffectText is empty if the command has
// an effect, and for a Millwright Machine.
func noEffectText(m *v1alpha1.Machine, command request.Command) string {
	if !observe.IsClusterAPIMachine(m) {
		return ""
	}
	switch command {
	case request.AbandonInstance, request.Preserve, request.Unpreserve:
		return fmt.Sprintf(
			"machine %s is of Cluster API: Millwright drains its node, and nothing else of its deletion is Millwright's",
			kubecli.KeyOfObject(m),
		)
	case request.Extend:
		return phrase.TextIf(
			hasNoDeadline(m),
			"the drain of machine %s has no end to extend: its nodeDrainTimeoutSeconds is not set",
			kubecli.KeyOfObject(m),
		)
	default:
		return ""
	}
}

// hasNoDeadline reports whether a drain evicts pods without a deadline.
func hasNoDeadline(m *v1alpha1.Machine) bool {
	return m.Spec.EffectiveDrainTimeout() == observe.NoDrainTimeout
}

// kubectlResource returns the resource name of a machine for kubectl.
func kubectlResource(m *v1alpha1.Machine) string {
	if observe.IsClusterAPIMachine(m) {
		return "machines.cluster.x-k8s.io"
	}
	return "machine"
}

// evictionTimeLimitText describes how long a drain that has not started may evict pods.
func evictionTimeLimitText(m *v1alpha1.Machine, when string) string {
	timeout := phrase.DurationText(m.Spec.EffectiveDrainTimeout())
	switch {
	case hasNoDeadline(m):
		return "its nodeDrainTimeoutSeconds is not set, and it has no end"
	case observe.IsClusterAPIMachine(m):
		return "its nodeDrainTimeoutSeconds of " + timeout + " begin " + when
	default:
		return "its drainTimeout of " + timeout + " begins " + when
	}
}
