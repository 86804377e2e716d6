//go:build integration

package rig

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"millwright/api/v1alpha1"
)

// CanaryToken is in every Secret of a test. The canary must never be in a history, a log, a metric or an event.
const CanaryToken = "canary-9c1f4be27d"

// NewClassSecret returns the Secret of the class "small".
func NewClassSecret(namespace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: namespace},
		StringData: map[string]string{"token": CanaryToken, "userData": "#cloud-config " + CanaryToken},
	}
}

// NewClass returns a MachineClass of the virtual provider. If providerSpec is empty, the class has small instances
// without latencies.
func NewClass(namespace, providerSpec string) *v1alpha1.MachineClass {
	return &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: namespace},
		Provider:   "virtual",
		ProviderSpec: runtime.RawExtension{
			Raw: []byte(cmp.Or(providerSpec, `{"region":"eu","zone":"eu-1","instanceType":"small"}`)),
		},
		SecretRef: &corev1.SecretReference{Namespace: namespace, Name: "small"},
	}
}

// Pool is a MachineDeployment of a test.
type Pool struct {
	rig       *Rig
	Namespace string
	Name      string
}

// CreatePool creates a MachineDeployment with the given changes. The machines of the pool use the namespace's class
// "small".
func (r *Rig) CreatePool(
	t *testing.T,
	namespace, name string,
	replicas int32,
	changes ...func(*v1alpha1.MachineDeployment),
) *Pool {
	t.Helper()
	labels := map[string]string{"pool": name, v1alpha1.LabelName: name}
	d := &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.MachineDeploymentSpec{
			Replicas: replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}},
			Template: v1alpha1.MachineTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: NewMachineSpec()},
		},
	}
	for _, change := range changes {
		change(d)
	}
	_, err := r.MachineClient.MachineV1alpha1().
		MachineDeployments(namespace).
		Create(t.Context(), d, metav1.CreateOptions{})
	require.NoError(t, err)
	return &Pool{rig: r, Namespace: namespace, Name: name}
}

// InCluster returns the pool for its nodes, pods and budgets in the cluster of another rig. The machines stay in the
// cluster of the pool.
func (p *Pool) InCluster(target *Rig) *Pool {
	return &Pool{rig: target, Namespace: p.Namespace, Name: p.Name}
}

// CreatePolicy creates a RolloutPolicy for the MachineDeployment with this name. The namespace must exist.
func (r *Rig) CreatePolicy(t *testing.T, namespace, name string, spec v1alpha1.RolloutPolicySpec) {
	t.Helper()
	spec.Targets = []v1alpha1.RolloutPolicyTarget{{Name: name}}
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	_, err := r.MachineClient.MachineV1alpha1().
		RolloutPolicies(namespace).
		Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
}

// NewMachineSpec returns the spec of a machine with the class "small".
func NewMachineSpec() v1alpha1.MachineSpec {
	return v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}}
}

// Scale sets the pool's replicas.
func (p *Pool) Scale(t *testing.T, replicas int) {
	t.Helper()
	p.Patch(t, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// Patch applies a merge patch to the MachineDeployment.
func (p *Pool) Patch(t *testing.T, patch string) {
	t.Helper()
	_, err := p.rig.MachineClient.MachineV1alpha1().
		MachineDeployments(p.Namespace).
		Patch(context.WithoutCancel(t.Context()), p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// Delete deletes the MachineDeployment, and does not wait until it is gone.
func (p *Pool) Delete(t *testing.T) {
	t.Helper()
	require.NoError(
		t,
		p.rig.MachineClient.MachineV1alpha1().
			MachineDeployments(p.Namespace).
			Delete(t.Context(), p.Name, metav1.DeleteOptions{}),
	)
}

// Deployment reads the MachineDeployment.
func (p *Pool) Deployment(t *testing.T) *v1alpha1.MachineDeployment {
	t.Helper()
	d, err := p.rig.MachineClient.MachineV1alpha1().
		MachineDeployments(p.Namespace).
		Get(t.Context(), p.Name, metav1.GetOptions{})
	require.NoError(t, err)
	return d
}

// Machines reads the pool's machines. Machines returns nil if the API server does not answer.
func (p *Pool) Machines(t *testing.T) []v1alpha1.Machine {
	t.Helper()
	list, err := p.rig.MachineClient.MachineV1alpha1().
		Machines(p.Namespace).
		List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + p.Name})
	if err != nil {
		return nil
	}
	return list.Items
}

// Sets reads the pool's MachineSets.
func (p *Pool) Sets(t *testing.T) []v1alpha1.MachineSet {
	t.Helper()
	list, err := p.rig.MachineClient.MachineV1alpha1().
		MachineSets(p.Namespace).
		List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + p.Name})
	require.NoError(t, err)
	return list.Items
}

// Nodes reads the nodes of the pool's machines.
func (p *Pool) Nodes(t *testing.T) []corev1.Node {
	t.Helper()
	list, err := p.rig.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var nodes []corev1.Node
	for _, n := range list.Items {
		if len(n.Name) > len(p.Name) && n.Name[:len(p.Name)+1] == p.Name+"-" {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// AwaitRunningMachines waits until exactly n machines exist, all of them are Running, and the MachineDeployment's
// status reports n machines.
func (p *Pool) AwaitRunningMachines(t *testing.T, n int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%d machines of %s running", n, p.Name), func() (bool, any) {
		phases := map[v1alpha1.MachinePhase]int{}
		machines := p.Machines(t)
		for _, m := range machines {
			phases[m.Status.CurrentStatus.Phase]++
		}
		if len(machines) != n || phases[v1alpha1.MachineRunning] != n {
			return false, phases
		}
		s := p.Deployment(t).Status
		return int(s.Replicas) == n && int(s.ReadyReplicas) == n && int(s.AvailableReplicas) == n &&
				int(s.UpdatedReplicas) == n, fmt.Sprintf(
				"status %+v",
				s,
			)
	})
}

// AwaitSyncedNodes waits until each node of the pool has the UID of its machine and Millwright's finalizer. A machine
// may be Running before its node has the UID and the finalizer.
func (p *Pool) AwaitSyncedNodes(t *testing.T) {
	t.Helper()
	Eventually(t, "each node of "+p.Name+" has the mark of its machine", func() (bool, any) {
		for _, n := range p.Nodes(t) {
			if n.Annotations[v1alpha1.AnnotationMachineUID] == "" || !slices.Contains(n.Finalizers, v1alpha1.FinalizerNode) {
				return false, n.Name
			}
		}
		return true, nil
	})
}

// AwaitPoolGone waits until the pool has no machine, no set, no node and no instance.
func (p *Pool) AwaitPoolGone(t *testing.T) {
	t.Helper()
	Eventually(t, "nothing left of "+p.Name, func() (bool, any) {
		machines, sets, nodes := len(p.Machines(t)), len(p.Sets(t)), len(p.Nodes(t))
		instances := len(p.ProviderIDs(t))
		return machines+sets+nodes+instances == 0, fmt.Sprintf(
			"%d machines, %d sets, %d nodes, %d instances",
			machines,
			sets,
			nodes,
			instances,
		)
	})
}

// AwaitMachineGone waits until a machine is gone, and returns the machine's deletion timestamp. The deletion
// timestamp is in whole seconds of the API server's clock. The timestamp is exact even if the test sees late that the
// machine is gone.
func (p *Pool) AwaitMachineGone(t *testing.T, m v1alpha1.Machine) time.Time {
	t.Helper()
	last := p.awaitWatchEvent(
		t,
		m,
		"is gone",
		func(e watch.EventType, _ *v1alpha1.Machine) bool { return e == watch.Deleted },
	)
	require.NotNil(t, last.DeletionTimestamp)
	return last.DeletionTimestamp.Time
}

// AwaitVersionWithCondition waits for a watch event after the version m in which the machine meets the condition. It
// returns the machine from this event. The failure message contains the parameter is.
func (p *Pool) AwaitVersionWithCondition(
	t *testing.T,
	m v1alpha1.Machine,
	is string,
	condition func(*v1alpha1.Machine) bool,
) *v1alpha1.Machine {
	t.Helper()
	return p.awaitWatchEvent(
		t,
		m,
		is,
		func(e watch.EventType, now *v1alpha1.Machine) bool { return e == watch.Modified && condition(now) },
	)
}

// awaitWatchEvent waits for a watch event of the machine m after its version m.
func (p *Pool) awaitWatchEvent(
	t *testing.T,
	m v1alpha1.Machine,
	is string,
	wanted func(watch.EventType, *v1alpha1.Machine) bool,
) *v1alpha1.Machine {
	t.Helper()
	w, err := p.rig.MachineClient.MachineV1alpha1().Machines(p.Namespace).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + m.Name, ResourceVersion: m.ResourceVersion,
	})
	require.NoError(t, err)
	defer w.Stop()
	for late := time.After(maxConditionWait); ; {
		select {
		case event, open := <-w.ResultChan():
			require.True(t, open, "the watch of machine %s has ended", m.Name)
			now, isMachine := event.Object.(*v1alpha1.Machine)
			require.True(t, isMachine, "%v", event.Object)
			if now.UID == m.UID && wanted(event.Type, now) {
				return now
			}
		case <-late:
			require.Failf(t, "it did not happen", "machine %s %s: not within %s", m.Name, is, maxConditionWait)
		}
	}
}

// ProviderIDs returns the provider IDs of the cloud's instances for the pool's machines.
func (p *Pool) ProviderIDs(t *testing.T) []string {
	t.Helper()
	all, err := p.rig.Cloud.Instances(t.Context())
	require.NoError(t, err)
	var ids []string
	for _, i := range all {
		if len(i.Tags.MachineName) > len(p.Name) && i.Tags.MachineName[:len(p.Name)+1] == p.Name+"-" {
			ids = append(ids, i.ProviderID)
		}
	}
	return ids
}

// RefuseMachines creates an admission policy with the name of the namespace. The API server then rejects new machines
// in all namespaces if the CEL expression is false for them. The rejection contains the message. RefuseMachines returns
// when the API server refuses a machine named m-2 in the namespace, so the expression must be false for the machine
// m-2. AllowMachines deletes the policy.
func (r *Rig) RefuseMachines(t *testing.T, namespace, expression, message string) {
	t.Helper()
	admission := r.Kube.AdmissionregistrationV1()
	_, err := admission.ValidatingAdmissionPolicies().
		Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
						RuleWithOperations: admissionregistrationv1.RuleWithOperations{
							Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
							Rule: admissionregistrationv1.Rule{
								APIGroups:   []string{v1alpha1.GroupName},
								APIVersions: []string{"*"},
								Resources:   []string{"machines"},
							},
						},
					}},
				},
				Validations: []admissionregistrationv1.Validation{{Expression: expression, Message: message}},
			},
		}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admission.ValidatingAdmissionPolicyBindings().
		Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: namespace, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}, metav1.CreateOptions{})
	require.NoError(t, err)
	Eventually(t, "the API server has taken up the policy", func() (bool, any) {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m-2"}, Spec: NewMachineSpec()}
		_, err := r.MachineClient.MachineV1alpha1().
			Machines(namespace).
			Create(t.Context(), m, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), message), err
	})
}

// AllowMachines deletes the policy that RefuseMachines has created.
func (r *Rig) AllowMachines(t *testing.T, namespace string) {
	t.Helper()
	admission := r.Kube.AdmissionregistrationV1()
	require.NoError(
		t,
		admission.ValidatingAdmissionPolicyBindings().Delete(context.Background(), namespace, metav1.DeleteOptions{}),
	)
	require.NoError(
		t,
		admission.ValidatingAdmissionPolicies().Delete(context.Background(), namespace, metav1.DeleteOptions{}),
	)
}
