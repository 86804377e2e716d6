package explain

import (
	"fmt"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
)

// Deployment is what the status of a deployment says, with its sets and machines.
type Deployment struct {
	Namespace, Name string
	Conditions      []Condition
	Busy            bool      // machines of other templates are there, or the template has no set: a pause keeps them so
	ClusterAPI      bool      // it is a MachineDeployment of Cluster API
	Resume          string    // command that ends a pause of the object itself or of its Cluster; empty: it has none
	Hold            string    // why failed machines are not replaced now; empty: they are, or there are none
	HoldSince       time.Time // zero: from now on
	// the rollout step that the rollout has reached and that ends by itself at Until, as a clause; empty: it waits at no
	// such step
	Step     string
	Until    time.Time
	Sets     []Set // without their Machines
	Machines []Machine
	Of       int // as in Set
}

// Blocked sums up what blocks the deployment, its sets and its machines.
func (d Deployment) Blocked(now time.Time) Summary {
	waits, upstream := d.waits(), []UpstreamMachine(nil)
	for _, set := range d.Sets {
		waits, upstream = append(waits, set.waits()...), append(upstream, set.Upstream...)
	}
	return summarize(waits, append(ofMachines(waits, d.Machines), ofUpstream(upstream)...), d.Of, now)
}

// waits returns what the deployment itself waits for; none if only its sets or machines wait.
func (d Deployment) waits() []Wait {
	var waits []Wait
	for _, c := range d.Conditions {
		if c.Type != vocabulary.ConditionProgressing {
			continue
		}
		w := d.stands(c)
		stopped := w.Blocked() && (w.Blockers[0] == vocabulary.BlockedPaused || w.Blockers[0] == vocabulary.BlockedHold)
		if w.Blocked() && (!stopped || d.Busy) {
			waits = append(waits, w)
		}
	}
	if d.Hold != "" {
		waits = append(waits, Wait{
			Blockers: []string{
				vocabulary.ConditionReplacementHeld,
			},
			Since:   d.HoldSince,
			Cause:   "failed machines are not replaced: " + d.Hold,
			Command: "kubectl get machines -n " + d.Namespace,
		})
	}
	return waits
}

// stands returns the wait that the condition Progressing stands for; the zero Wait if the rollout goes on.
func (d Deployment) stands(c Condition) Wait {
	w := Wait{Blockers: []string{c.Reason}, Since: c.Since, Cause: c.Message}
	object := fmt.Sprintf("%s -n %s %s", d.resource(), d.Namespace, d.Name)
	switch c.Reason {
	case vocabulary.ReasonInvalid:
		w.Command = "kubectl edit " + object
	case vocabulary.ReasonMachineSetCreateError:
		w.Blockers, w.Command = []string{vocabulary.BlockedRefused}, "kubectl edit "+object
		w.Next = Words{One: "it is tried again at least every " + phrase.Length(RefusedMost)}
	case vocabulary.ReasonTemplateNotFound, vocabulary.ReasonScaleUpStopped:
		w.Command = "kubectl get " + object + " -o yaml"
	case vocabulary.ReasonExtensionFailed:
		w.Next = Words{One: "it is asked again every " + phrase.Length(rollout.AskAgain)}
		w.Command = "kubectl get extensionconfigs.runtime.cluster.x-k8s.io -o yaml"
	case vocabulary.ReasonDeploymentPaused:
		w.Blockers, w.Next, w.Command = []string{vocabulary.BlockedPaused}, untilResumed(), d.starter("resume")
		if d.Resume != "" {
			w.Next, w.Command = Words{One: "nothing is done until this has ended"}, d.Resume
		}
	case vocabulary.ReasonRolloutHeld:
		w.Blockers, w.Next, w.Command = []string{vocabulary.BlockedHold}, untilResumed(), d.starter("resume")
	case vocabulary.ReasonRolloutWaiting:
		w.Blockers, w.Command = []string{vocabulary.BlockedApproval}, d.starter("approve")+giveReason
		if d.Step != "" {
			w.Blockers = []string{vocabulary.BlockedStep}
			w.Cause = d.Step
			w.Next = Words{One: "the next step begins"}
			w.At = d.Until
		}
	case vocabulary.ReasonProgressDeadlineExceeded:
		w.Command = d.starter("status")
	default:
		return Wait{}
	}
	return w
}

// untilResumed says what follows while a person has stopped the rollout.
func untilResumed() Words { return Words{One: "nothing is rolled out until somebody resumes it"} }

// resource names the kind of the deployment for kubectl. Both API groups have machinedeployments.
func (d Deployment) resource() string {
	if d.ClusterAPI {
		return "machinedeployments.cluster.x-k8s.io"
	}
	return "machinedeployment"
}

func (d Deployment) starter(command string) string {
	return fmt.Sprintf("millwright rollout %s %s/%s", command, d.Namespace, d.Name)
}
