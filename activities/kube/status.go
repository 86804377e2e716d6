package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/explain"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/observe/machine"
	"millwright/provider"
)

// Step is the running step of a workflow; status.currentOperation shows it.
type Step struct {
	WorkflowID string
	RolloutOf  string // UID of the deployment that the workflow rolls out; empty for other workflows
	Name       string
	Since      time.Time
	Deadline   time.Time // deadline of the step; zero: no deadline
	BlockedBy  []string  // reasons that block the step; nil: nothing blocks
	Cause      string    // why the step takes time, as a clause without the name of the object
}

// ReportResult is the result of a report that wrote the status of a Machine.
type ReportResult struct {
	Version   string   // resourceVersion of the Machine to wait for
	WaitsFor  string   // value of status.currentOperation.waitsFor
	BlockedBy []string // reasons that block the machine; nil: the machine is not blocked
}

// UnmarshalJSON also accepts a string, because earlier versions returned only the resourceVersion.
func (r *ReportResult) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &r.Version); err == nil {
		return nil
	}
	type plain ReportResult
	return json.Unmarshal(data, (*plain)(r))
}

// Event is a Kubernetes event about an object.
type Event struct {
	Warning bool
	Reason  string
	Message string
}

// Address is one address of an instance.
type Address = provider.Address

// maxCauseBytes is the maximum length of a step's cause in a status, in bytes. Source: the length of three sentences
// about blockers of a drain.
const maxCauseBytes = 600

// OperationOfStep converts a step to its form in the status.
func OperationOfStep(s *Step) *v1alpha1.Operation {
	if s == nil {
		return nil
	}
	o := &v1alpha1.Operation{
		WorkflowID: s.WorkflowID,
		RolloutOf:  types.UID(s.RolloutOf),
		Step:       s.Name,
		Since:      metav1.NewTime(s.Since).Rfc3339Copy(),
		BlockedBy:  s.BlockedBy,
		Cause:      phrase.TruncateText(s.Cause, maxCauseBytes),
	}
	if !s.Deadline.IsZero() {
		o.Deadline = new(metav1.NewTime(s.Deadline).Rfc3339Copy())
	}
	return o
}

// AddBlockersToOperation adds the blockers of a set or deployment to its current operation. If no operation runs but a
// machine is blocked, AddBlockersToOperation returns an operation without a step.
func AddBlockersToOperation(o *v1alpha1.Operation, blocked explain.Summary) *v1alpha1.Operation {
	switch {
	case blocked.IsBlocked():
		if o == nil {
			o = &v1alpha1.Operation{}
		}
		o.WaitsFor, o.Summary, o.BlockedBy = blocked.Message, blocked.Short, blocked.Blockers
		o.Waits = machine.StatusWaits(blocked.Waits)
		o.Since = metav1.NewTime(blocked.Since).Rfc3339Copy()
		if o.Deadline = nil; !blocked.At.IsZero() {
			o.Deadline = new(metav1.NewTime(blocked.At).Rfc3339Copy())
		}
	case o != nil:
		if o.Step != vocabulary.StepWriteRefused { // the page of the workflow keeps the blockers of an earlier status
			o.BlockedBy = nil
		}
		o.WaitsFor = o.Cause
		o.Summary = explain.WaitState{Step: o.Step, Cause: o.Cause}.ShortText(time.Time{})
	}
	return o
}

// RecordEvent records an event about an object. A nil event is ignored.
func (a *Kube) RecordEvent(object runtime.Object, e *Event) {
	if e == nil {
		return
	}
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	a.Recorder.Event(object, kind, e.Reason, ShortenMessage(e.Message))
}

// maxKindBytes is the maximum length of a class's kind in messages, in bytes. Source: the maximum length of a kind's
// name in the API.
const maxKindBytes = 63

// IgnoredKindMessage returns a message for a class reference with a kind. The kind has no effect, because the class is
// found by its name alone. IgnoredKindMessage returns "" for the kind MachineClass.
func IgnoredKindMessage(class v1alpha1.ClassSpec) string {
	return phrase.TextIf(
		class.Kind != cache.KindClass,
		"class.kind %q has no effect: the only kind is %s, and the one named %s is used",
		phrase.TruncateText(class.Kind, maxKindBytes),
		cache.KindClass,
		class.Name,
	)
}

// maxSummaryBytes is the maximum length of a machine's description in the status of its set or deployment, in bytes.
// Source: the length of one line of text; the machine's own status has the whole description.
const maxSummaryBytes = 200

// SummarizeMachines returns the summaries of the machines with these names, sorted by name, in the form that MCM's
// dashboards expect.
func SummarizeMachines(machines []*v1alpha1.Machine, names []string) []v1alpha1.MachineSummary {
	var failed []v1alpha1.MachineSummary
	for _, m := range machines {
		if slices.Contains(names, m.Name) {
			summary := v1alpha1.MachineSummary{
				Name:          m.Name,
				ProviderID:    m.Spec.ProviderID,
				LastOperation: m.Status.LastOperation,
			}
			summary.LastOperation.Description = phrase.TruncateText(summary.LastOperation.Description, maxSummaryBytes)
			if owner := metav1.GetControllerOf(m); owner != nil {
				summary.OwnerRef = owner.Name
			}
			failed = append(failed, summary)
		}
	}
	slices.SortFunc(failed, func(x, y v1alpha1.MachineSummary) int { return cmp.Compare(x.Name, y.Name) })
	return failed
}

// SelectorText returns a label selector in the form of the status, or "invalid" with the error if the selector is
// invalid.
func SelectorText(selector *metav1.LabelSelector) string {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return fmt.Sprintf("invalid: %v", err) // admission rejects an invalid selector
	}
	return s.String()
}
