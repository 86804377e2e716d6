package activities

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
)

// OrphanReport is what people are told of one sweep.
type OrphanReport struct {
	Class     Ref
	Collected []string // provider IDs
	Held      string   // why nothing was deleted although something might have been
	Failed    string   // why the sweep came to nothing
	Unclear   []string // what no sweep takes care of
}

// Results of a sweep, as its metric tells them.
const (
	sweepClean     = "clean" // nothing was to be deleted
	sweepCollected = "collected"
	sweepHeld      = "held"
	sweepFailed    = "failed"
)

// ReportOrphans counts a sweep, and tells of it with events on the class. Done twice it counts twice, and an event says so.
func (a *Activities) ReportOrphans(_ context.Context, in OrphanReport) error {
	a.Metrics.swept(in)
	class := &v1alpha1.MachineClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachineClass"},
		ObjectMeta: metav1.ObjectMeta{Namespace: in.Class.Namespace, Name: in.Class.Name, UID: types.UID(in.Class.UID)},
	}
	if len(in.Collected) > 0 {
		a.Recorder.Event(class, corev1.EventTypeNormal, v1alpha1.ReasonOrphansCollected, brief(fmt.Sprintf("Deleted what no Machine claims (%d): %s", len(in.Collected), strings.Join(in.Collected, ", "))))
	}
	if in.Held != "" {
		a.Recorder.Event(class, corev1.EventTypeWarning, v1alpha1.ReasonOrphansHeld, brief(in.Held))
	}
	if in.Failed != "" {
		a.Recorder.Event(class, corev1.EventTypeWarning, v1alpha1.ReasonOrphanSweepFailed, brief(in.Failed))
	}
	if len(in.Unclear) > 0 {
		a.Recorder.Event(class, corev1.EventTypeWarning, v1alpha1.ReasonInstancesUnclear, brief(strings.Join(in.Unclear, "; ")))
	}
	return nil
}

func (r OrphanReport) result() string {
	switch {
	case r.Failed != "":
		return sweepFailed
	case r.Held != "":
		return sweepHeld
	case len(r.Collected) > 0:
		return sweepCollected
	default:
		return sweepClean
	}
}
