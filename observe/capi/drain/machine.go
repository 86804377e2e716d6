package drain

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	observecache "millwright/observe/cache"
	"millwright/observe/capi"
	observedrain "millwright/observe/drain"
)

// drainStatus is the content of v1alpha1.AnnotationDrainStatus.
type drainStatus struct {
	Deletion      *v1alpha1.MachineDeletion `json:"deletion,omitempty"`
	Operation     *v1alpha1.Operation       `json:"currentOperation,omitempty"`
	LastOperation *v1alpha1.LastOperation   `json:"lastOperation,omitempty"`
}

// ToMillwrightMachine converts a Machine of Cluster API to a Machine of Millwright, with the fields that drains need.
// The result has no class. The node name is the name that Cluster API recorded. An annotation of Millwright that does
// not parse is ignored.
func ToMillwrightMachine(m *clusterv1.Machine) *v1alpha1.Machine {
	v := &v1alpha1.Machine{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: *m.ObjectMeta.DeepCopy(),
	}
	delete(v.Labels, v1alpha1.LabelNode)
	delete(v.Annotations, AnnotationPreDrainHook)
	delete(v.Annotations, v1alpha1.AnnotationDrainStatus)
	if v.Annotations[annotationExcludeNodeDraining] == drainHookValue {
		delete(v.Annotations, annotationExcludeNodeDraining)
	}
	v.Spec.ProviderID = m.Spec.ProviderID
	timeout := observedrain.NoDrainTimeout
	if seconds := capi.ValueOrZero(m.Spec.Deletion.NodeDrainTimeoutSeconds); seconds > 0 {
		timeout = time.Duration(seconds) * time.Second
	}
	v.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: timeout}}
	s := &v.Status
	s.NodeName = m.Status.NodeRef.Name
	if m.DeletionTimestamp != nil {
		s.CurrentStatus.Phase = v1alpha1.MachineTerminating
	}
	var r drainStatus
	if json.Unmarshal([]byte(m.Annotations[v1alpha1.AnnotationDrainStatus]), &r) == nil {
		s.Deletion, s.CurrentOperation = r.Deletion, r.Operation
		if r.LastOperation != nil {
			s.LastOperation = *r.LastOperation
		}
	}
	if s.Deletion == nil && hasReachedPreDrainHooks(m) {
		s.Deletion = &v1alpha1.MachineDeletion{
			Stage: v1alpha1.MachineDeletionDrain,
			Since: reachedPreDrainHooksAt(m),
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

// reportedConditions returns the types of the conditions that Millwright writes on a Machine of Cluster API.
func reportedConditions() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{v1alpha1.MachineDrained, v1alpha1.MachineBlocked}
}

// StatusText returns the value of v1alpha1.AnnotationDrainStatus for the status of a machine from ToMillwrightMachine.
func StatusText(v *v1alpha1.Machine) (string, error) {
	r := drainStatus{Deletion: v.Status.Deletion, Operation: v.Status.CurrentOperation}
	if v.Status.LastOperation.Type != "" {
		r.LastOperation = &v.Status.LastOperation
	}
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	return string(text), nil
}

// CopyConditions copies the conditions of v, a machine from ToMillwrightMachine, to a Machine of Cluster API.
// CopyConditions reports whether any condition changed.
func CopyConditions(m *clusterv1.Machine, v *v1alpha1.Machine) (changed bool) {
	for _, kind := range reportedConditions() {
		c := observecache.FindNodeCondition(v.Status.Conditions, kind)
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
