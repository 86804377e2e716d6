package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"millwright/api/v1alpha1"
	"millwright/decide/verb"
	"millwright/observe"
)

// Reasons of the events on a machine when somebody gives it a verb.
const (
	reasonVerbGiven   = "VerbGiven"
	reasonVerbRefused = "VerbRefused"
)

// VerbOrder is a verb that somebody gives a machine in Temporal.
type VerbOrder struct {
	Machine Ref
	Order   verb.Order
	At      time.Time // when it was given: all times that it writes count from here
	Unheard bool      // nobody hears the answer: a refusal is told by an event of the machine
}

// VerbAnswer says what became of an order.
type VerbAnswer struct {
	Given   bool
	Message string // what was written, or why it was refused
	Version string // resourceVersion to wait for; empty when it was refused
}

// GiveVerb writes a verb on a machine, if the machine as it is now has use for it, and tells people who wants it and why. A
// refusal is an answer and no error. Running it twice writes once and tells once.
func (a *Activities) GiveVerb(ctx context.Context, in VerbOrder) (VerbAnswer, error) {
	order := in.Order
	order.Asked = in.At
	key := observe.VerbAnnotation(order.Verb)
	var found *v1alpha1.Machine
	var d verb.Decision
	version, err := a.changeMachine(ctx, Read{Ref: in.Machine, Live: true}, func(m *v1alpha1.Machine) map[string]any {
		found, d = m, verb.Decide(order, observe.VerbFacts(m, in.At))
		return verbPatch(d, key)
	})
	if err != nil {
		if d.Refused = refusal(err); d.Refused == "" {
			return VerbAnswer{}, err
		}
	}
	if d.Refused != "" {
		if in.Unheard && found != nil {
			a.tell(found, &Event{Warning: true, Reason: reasonVerbRefused, Message: brief(order.Wish() + "; refused: " + d.Refused)})
		}
		return VerbAnswer{Message: d.Refused}, nil
	}
	written := d.Written(key, found.Annotations[key])
	if !d.Same {
		a.tell(found, &Event{Reason: reasonVerbGiven, Message: brief(order.Wish() + "; " + written)})
	}
	return VerbAnswer{Given: true, Message: written, Version: version}, nil
}

// verbPatch writes what was decided; nil when there is nothing to write.
func verbPatch(d verb.Decision, key string) map[string]any {
	if d.Refused != "" || d.Same {
		return nil
	}
	value := &d.Value
	if d.Remove {
		value = nil
	}
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// refusal says why a machine will not be written, now or later; empty for what may pass.
func refusal(err error) string {
	var failed *temporal.ApplicationError
	if !errors.As(err, &failed) || !failed.NonRetryable() {
		return ""
	}
	return failed.Message()
}
