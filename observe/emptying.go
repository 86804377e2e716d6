package observe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/inplace"
)

// Emptying is what the node of a machine that is to stay has to be empty for. The zero Emptying is that of a machine that is
// to go, and of a node that may keep its pods.
type Emptying struct {
	Purpose  v1alpha1.DrainPurpose
	Occasion time.Time // which one of that purpose; zero where it is not known
}

// EmptyingOf says what the node of a machine has to be empty for. One of a preserved machine has to be so no more once its
// drain has ended; for an update the node itself has to say so. Nothing that it is given is changed.
func EmptyingOf(m *v1alpha1.Machine, node *corev1.Node, now time.Time) Emptying {
	if node == nil || m.DeletionTimestamp != nil {
		return Emptying{}
	}
	if InPlace(m, node).Step == inplace.Drain {
		return Emptying{Purpose: v1alpha1.DrainForUpdate, Occasion: InPlaceNode(node).Since}
	}
	if m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed || !Preservation(m, node, now).Preserve {
		return Emptying{}
	}
	e := Emptying{Purpose: v1alpha1.DrainForPreservation, Occasion: timeOf(m.Status.CurrentStatus.PreserveExpiryTime)}
	if d := DrainOf(m, e); e.Occasion.IsZero() || (d != nil && d.Result != "") {
		return Emptying{}
	}
	return e
}

// DrainOf returns the record of a drain: with the zero Emptying that of a machine's deletion, else the one for that purpose
// and occasion. Nil when there is none.
func DrainOf(m *v1alpha1.Machine, e Emptying) *v1alpha1.MachineDrain {
	if e.Purpose != "" {
		return stayingDrain(m, e.Purpose, e.Occasion)
	}
	if m.Status.Deletion == nil {
		return nil
	}
	return m.Status.Deletion.Drain
}

// Staying returns the record of the drain that empties the node of a machine that is to stay; nil when none does. It knows
// the node by the conditions that the machine has copied. That an update was called off, the node tells by labels alone: of
// the machine, only that nothing is in motion any more.
func Staying(m *v1alpha1.Machine) *v1alpha1.StayingDrain {
	d := m.Status.Drain
	if d == nil || d.Result != "" || m.DeletionTimestamp != nil || m.Status.CurrentOperation == nil {
		return nil
	}
	var occasion time.Time
	switch {
	case d.Purpose == v1alpha1.DrainForUpdate:
		occasion = InPlaceNode(copiedNode(m)).Since
	case m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed:
		occasion = timeOf(m.Status.CurrentStatus.PreserveExpiryTime)
	}
	if occasion.IsZero() || stayingDrain(m, d.Purpose, occasion) == nil {
		return nil
	}
	return d
}

// copiedNode is the node of a machine as far as the machine tells of it.
func copiedNode(m *v1alpha1.Machine) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.Labels[v1alpha1.LabelNode]},
		Status:     corev1.NodeStatus{Conditions: m.Status.Conditions},
	}
}

func stayingDrain(m *v1alpha1.Machine, purpose v1alpha1.DrainPurpose, occasion time.Time) *v1alpha1.MachineDrain {
	d := m.Status.Drain
	if d == nil || d.Purpose != purpose || !d.Occasion.Equal(new(metav1.NewTime(occasion))) {
		return nil
	}
	return &d.MachineDrain
}
