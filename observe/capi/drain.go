package capi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/decide/phrase"
	"millwright/decide/replace"
	observecache "millwright/observe/cache"
	observedrain "millwright/observe/drain"
)

// RulesResource is the resource of Cluster API's drain rules.
const RulesResource observecache.Resource = "machinedrainrules.cluster.x-k8s.io"

// The annotations of a Machine whose node Millwright drains. With the first, Cluster API waits before its own drain;
// with the second, it does not drain. Both have the value hookOwner.
const (
	AnnotationHook    = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/millwright"
	annotationExclude = clusterv1.ExcludeNodeDrainingAnnotation
	hookOwner         = "millwright"
)

// Drains reports whether Millwright drains the nodes of the machines of a set.
func (c *Cache) Drains(set *clusterv1.MachineSet) bool {
	if value, says := set.Annotations[v1alpha1.AnnotationClusterAPIDrain]; says {
		return value == "true"
	}
	if name := set.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		if d, found := c.Deployment(set.Namespace + "/" + name); found {
			if value, says := d.Annotations[v1alpha1.AnnotationClusterAPIDrain]; says {
				return value == "true"
			}
		}
	}
	cluster, found := c.ClusterOf(set)
	return found && cluster.Annotations[v1alpha1.AnnotationClusterAPIDrain] == "true"
}

// MachineAnnotations returns the annotations that Millwright applies to a machine of a set: those of the template, and
// the hook if Millwright drains the node. A machine that a person excluded from draining gets no hook. existing is nil
// for a new machine.
func (c *Cache) MachineAnnotations(set *clusterv1.MachineSet, existing *clusterv1.Machine) map[string]string {
	template := maps.Clone(set.Spec.Template.Annotations)
	if !c.Drains(set) || excluded(template) || existing != nil && excluded(existing.Annotations) {
		return template
	}
	result := map[string]string{AnnotationHook: hookOwner, annotationExclude: hookOwner}
	maps.Copy(result, template)
	return result
}

// excluded reports whether somebody else than Millwright excludes a machine from draining.
func excluded(annotations map[string]string) bool {
	value, set := annotations[annotationExclude]
	return set && value != hookOwner
}

// Hooked reports whether a machine has Millwright's hook.
func Hooked(m *clusterv1.Machine) bool {
	_, hooked := m.Annotations[AnnotationHook]
	return hooked
}

// DrainedByUs reports whether Millwright drains the node of a machine, or has drained it.
func DrainedByUs(m *clusterv1.Machine) bool {
	return Hooked(m) || m.Annotations[v1alpha1.AnnotationDrainStatus] != ""
}

// Unhook returns the annotations to remove from a machine, as a merge patch: the hook, and unless Millwright has
// drained its node, also the annotation that keeps Cluster API from draining it.
func Unhook(m *clusterv1.Machine, drained bool) map[string]any {
	gone := map[string]any{}
	if Hooked(m) {
		gone[AnnotationHook] = nil
	}
	if m.Annotations[annotationExclude] == hookOwner && !drained {
		gone[annotationExclude] = nil
	}
	if len(gone) == 0 {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"annotations": gone}}
}

// record is what v1alpha1.AnnotationDrainStatus holds.
type record struct {
	Deletion  *v1alpha1.MachineDeletion `json:"deletion,omitempty"`
	Operation *v1alpha1.Operation       `json:"currentOperation,omitempty"`
	Last      *v1alpha1.LastOperation   `json:"lastOperation,omitempty"`
}

// AsMachine returns a machine of Cluster API in the form of a Machine of Millwright, as far as drains need it. It has
// no class, and its node has the name that Cluster API has found. An annotation of Millwright that cannot be read
// counts as absent.
func AsMachine(m *clusterv1.Machine) *v1alpha1.Machine {
	v := &v1alpha1.Machine{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: *m.ObjectMeta.DeepCopy(),
	}
	delete(v.Labels, v1alpha1.LabelNode)
	delete(v.Annotations, AnnotationHook)
	delete(v.Annotations, v1alpha1.AnnotationDrainStatus)
	if v.Annotations[annotationExclude] == hookOwner {
		delete(v.Annotations, annotationExclude)
	}
	v.Spec.ProviderID = m.Spec.ProviderID
	timeout := observedrain.Forever
	if seconds := Value(m.Spec.Deletion.NodeDrainTimeoutSeconds); seconds > 0 {
		timeout = time.Duration(seconds) * time.Second
	}
	v.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: timeout}}
	s := &v.Status
	s.NodeName = m.Status.NodeRef.Name
	if m.DeletionTimestamp != nil {
		s.CurrentStatus.Phase = v1alpha1.MachineTerminating
	}
	var r record
	if json.Unmarshal([]byte(m.Annotations[v1alpha1.AnnotationDrainStatus]), &r) == nil {
		s.Deletion, s.CurrentOperation = r.Deletion, r.Operation
		if r.Last != nil {
			s.LastOperation = *r.Last
		}
	}
	if s.Deletion == nil && waiting(m) {
		s.Deletion = &v1alpha1.MachineDeletion{
			Stage: v1alpha1.MachineDeletionDrain,
			Since: m.Status.Deletion.WaitForPreDrainHookStartTime,
		}
	}
	for _, kind := range reportedConditions() {
		if c := meta.FindStatusCondition(m.Status.Conditions, string(kind)); c != nil {
			s.Conditions = append(s.Conditions, corev1.NodeCondition{
				Type:               kind,
				Status:             corev1.ConditionStatus(c.Status),
				Reason:             c.Reason,
				Message:            c.Message,
				LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	return v
}

// reportedConditions are the types of the conditions that Millwright writes on a machine of Cluster API.
func reportedConditions() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{v1alpha1.MachineDrained, v1alpha1.MachineBlocked}
}

// StatusOf returns the value of v1alpha1.AnnotationDrainStatus for the status of a machine in the form of AsMachine.
func StatusOf(v *v1alpha1.Machine) (string, error) {
	r := record{Deletion: v.Status.Deletion, Operation: v.Status.CurrentOperation}
	if v.Status.LastOperation.Type != "" {
		r.Last = &v.Status.LastOperation
	}
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	return string(text), nil
}

// SetDrainConditions gives a machine the conditions of a machine in the form of AsMachine, and reports whether that
// changed any.
func SetDrainConditions(m *clusterv1.Machine, v *v1alpha1.Machine) (changed bool) {
	for _, kind := range reportedConditions() {
		c := observecache.Condition(v.Status.Conditions, kind)
		if c == nil {
			changed = meta.RemoveStatusCondition(&m.Status.Conditions, string(kind)) || changed
			continue
		}
		changed = meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
			Type:               string(kind),
			Status:             metav1.ConditionStatus(c.Status),
			Reason:             c.Reason,
			Message:            c.Message,
			LastTransitionTime: c.LastTransitionTime,
		}) || changed
	}
	return changed
}

// waiting reports whether Cluster API has come to the pre-drain hooks of a machine. It does not pass Millwright's while
// the hook is there, unless it would not drain. The reason of its condition Deleting says the same, except after an
// error.
func waiting(m *clusterv1.Machine) bool {
	return m.Status.Deletion != nil && !m.Status.Deletion.WaitForPreDrainHookStartTime.IsZero()
}

// paused says why Cluster API, and so Millwright, does nothing to a machine for now; empty if it is not paused.
func paused(m *clusterv1.Machine, cluster *clusterv1.Cluster) string {
	if _, itself := m.Annotations[clusterv1.PausedAnnotation]; itself {
		return "the machine has the annotation " + clusterv1.PausedAnnotation
	}
	return phrase.If(cluster != nil && Value(cluster.Spec.Paused), "Cluster %s is paused", m.Spec.ClusterName)
}

// clusterOf returns the Cluster of a machine; nil if it does not exist.
func (c *Cache) clusterOf(m *clusterv1.Machine) *clusterv1.Cluster {
	cluster, _ := get[*clusterv1.Cluster](c, ClustersResource, m.Namespace+"/"+m.Spec.ClusterName)
	return cluster
}

// DrainSays returns what Cluster API says about a machine that its drain depends on: how far the deletion is, and the
// health of its node.
func DrainSays(m *clusterv1.Machine) []string {
	says := []string{fmt.Sprint(waiting(m))}
	if c := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeReadyCondition); c != nil {
		says = append(says, string(c.Status))
	}
	if m.Status.Deletion != nil && !m.Status.Deletion.WaitForPreTerminateHookStartTime.IsZero() {
		says = append(says, "past")
	}
	return says
}

// Hook returns the facts that decide about the hook of a machine, without those about its node.
func (c *Cache) Hook(ctx context.Context, m *clusterv1.Machine, v *v1alpha1.Machine) (drain.Hook, error) {
	h := drain.Hook{
		Hooked: Hooked(m), Deleting: m.DeletionTimestamp != nil, Waiting: waiting(m), NodeName: m.Status.NodeRef.Name,
		Skip: observedrain.AnnotationReason(v, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining),
	}
	if d := v.Status.Deletion; d != nil && d.Drain != nil {
		h.Result = d.Drain.Result
	}
	if !h.Hooked || !h.Deleting {
		return h, nil
	}
	cluster := c.clusterOf(m)
	if h.Paused = paused(m, cluster); h.Paused != "" {
		return h, nil
	}
	around, err := c.aroundDrain(ctx, m, cluster)
	h.Needless = around.Needless()
	return h, err
}

// aroundDrain reads what around a machine decides whether Cluster API would drain its node. cluster may be nil.
func (c *Cache) aroundDrain(
	ctx context.Context,
	m *clusterv1.Machine,
	cluster *clusterv1.Cluster,
) (drain.Around, error) {
	a := drain.Around{
		Cluster: m.Spec.ClusterName, ClusterGone: cluster == nil || cluster.DeletionTimestamp != nil,
		Passed: m.Status.Deletion != nil && !m.Status.Deletion.WaitForPreTerminateHookStartTime.IsZero(),
	}
	if a.ClusterGone || a.Passed {
		return a, nil
	}
	if ref := cluster.Spec.ControlPlaneRef; ref.IsDefined() {
		o, _, _, err := c.Foreign(ctx, m.Namespace, ref)
		if err != nil && !errors.Is(err, ErrNoKind) {
			return a, err
		}
		if o != nil && o.GetDeletionTimestamp() != nil {
			a.ControlPlane = ref.Kind + " " + ref.Name
		}
	}
	ref := m.Spec.InfrastructureRef
	resource, err := c.Resource(ctx, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if errors.Is(err, ErrNoKind) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	o, err := c.client.Objects.Resource(resource).Namespace(m.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && o.GetDeletionTimestamp() != nil:
		a.Infrastructure = ref.Kind + " " + ref.Name
	case err != nil:
		return a, fmt.Errorf("get %s %s/%s: %w", ref.Kind, m.Namespace, ref.Name, err)
	}
	return a, nil
}

// DrainRules returns Cluster API's drain rules that select a machine. A rule that cannot be read is an error, because
// it may select this machine.
func (c *Cache) DrainRules(m *clusterv1.Machine) (observedrain.Rules, error) {
	var found observedrain.Rules
	informer := c.Cluster.Informer(RulesResource)
	for _, r := range observecache.Indexed[*clusterv1.MachineDrainRule](informer, cache.NamespaceIndex, m.Namespace) {
		selects, err := c.ruleOf(r, m)
		if err != nil {
			return nil, fmt.Errorf("read MachineDrainRule %s/%s: %w", r.Namespace, r.Name, err)
		}
		if !selects {
			continue
		}
		var pods []observedrain.PodSelector
		for _, p := range r.Spec.Pods {
			pods = append(pods, observedrain.PodSelector{Pod: p.Selector, Namespace: p.NamespaceSelector})
		}
		rule, err := observedrain.NewRule(r.Name, string(r.Spec.Drain.Behavior), r.Spec.Drain.Order, pods)
		if err != nil {
			return nil, fmt.Errorf("read MachineDrainRule %s/%s: %w", r.Namespace, r.Name, err)
		}
		found = append(found, rule)
	}
	return observedrain.SortedRules(found), nil
}

// ruleOf reports whether a drain rule selects a machine: one of its entries matches the labels of the machine and of
// its Cluster.
func (c *Cache) ruleOf(r *clusterv1.MachineDrainRule, m *clusterv1.Machine) (bool, error) {
	var ofCluster labels.Set
	if cluster := c.clusterOf(m); cluster != nil {
		ofCluster = cluster.Labels
	}
	for _, entry := range r.Spec.Machines {
		machines, err := observedrain.Selector(entry.Selector)
		if err != nil {
			return false, err
		}
		clusters, err := observedrain.Selector(entry.ClusterSelector)
		if err != nil {
			return false, err
		}
		if (machines == nil || machines.Matches(labels.Set(m.Labels))) && (clusters == nil || clusters.Matches(ofCluster)) {
			return true, nil
		}
	}
	return len(r.Spec.Machines) == 0, nil
}

// Turns returns the facts about the order in which the nodes of a Cluster are drained.
func (c *Cache) Turns(namespace, cluster string) (turns []drain.Turn) {
	for _, m := range c.machinesOfCluster(namespace, cluster) {
		v := AsMachine(m)
		if !Hooked(m) || !observedrain.InDrain(v) {
			continue
		}
		t := drain.Turn{
			UID: string(m.UID), Namespace: m.Namespace, Name: m.Name, DeletedAt: m.DeletionTimestamp.Time,
			Priority: observedrain.Priority(v), Queued: v.Status.Deletion.Queued,
			Group: cmp.Or(m.Labels[clusterv1.MachineDeploymentNameLabel], m.Labels[clusterv1.MachineSetNameLabel]),
		}
		if d := v.Status.Deletion.Drain; d != nil {
			t.Started = d.StartedAt.Time
		}
		turns = append(turns, t)
	}
	return turns
}

// machinesOfCluster returns the machines of a Cluster, in no order.
func (c *Cache) machinesOfCluster(namespace, cluster string) (all []*clusterv1.Machine) {
	for _, m := range observecache.All[*clusterv1.Machine](c.Cluster.Informer(MachinesResource)) {
		if m.Namespace == namespace && m.Spec.ClusterName == cluster {
			all = append(all, m)
		}
	}
	return all
}

// JoinedNodes returns how many nodes of a Cluster have joined, and which look dead to Cluster API.
func (c *Cache) JoinedNodes(namespace, cluster string) (n replace.Nodes) {
	for _, m := range c.machinesOfCluster(namespace, cluster) {
		if !m.Status.NodeRef.IsDefined() {
			continue
		}
		n.Joined++
		if ready := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeReadyCondition); ready != nil &&
			ready.Status != metav1.ConditionTrue {
			n.Dead++
		}
	}
	return n
}

// Hooks returns the machines with Millwright's hook for which wanted returns true, in no order.
func (c *Cache) Hooks(wanted func(*clusterv1.Machine) bool) (all []*clusterv1.Machine) {
	for _, m := range observecache.All[*clusterv1.Machine](c.Cluster.Informer(MachinesResource)) {
		if Hooked(m) && wanted(m) {
			all = append(all, m)
		}
	}
	return all
}
