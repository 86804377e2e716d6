package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/explain"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/observe/machine"
	"millwright/process/problems"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
	"millwright/workflows/run"
)

// subject is the object that is explained.
type subject struct {
	kind           string
	workflowKind   run.Kind      // kind of the object's workflow; empty if the object has no workflow
	workflowObject metav1.Object // object whose name is in the workflow's ID; nil means the object itself
	object         metav1.Object
	// generation of the object, and the generation that the status observed; 0 if the kind has no generation
	generation, observedGeneration int64
	operation                      *v1alpha1.Operation
	idleText                       string // state of the object, for a status without a sentence
	hasNoStatus                    bool   // Millwright has written no status of a machine
	isIdleTextComplete             bool   // idleText also describes what happens to the object, or that nothing happens
	provider                       string // provider of the object's class or of its machines' class; empty if not known
	pollerCount                    *int   // number of workers that poll the provider's queue; nil if not known
	counts                         *counts
	machine                        *memberMachine // the object itself, if the object is a machine
	members                        []memberMachine
}

// memberMachine is a machine, together with what it waits for.
type memberMachine struct {
	name, status string
	operation    *v1alpha1.Operation // nil if the machine is idle
	currentWait  explain.WaitState
}

// newMemberMachine returns the member for a machine. The parameter named of is the machine's class; nil if the class
// cannot be read.
func newMemberMachine(m *v1alpha1.Machine, of *v1alpha1.MachineClass, now time.Time) memberMachine {
	return memberMachine{
		m.Name,
		kubecli.PhaseText(*m),
		m.Status.CurrentOperation,
		machine.ExplanationFacts(m, of, now).CurrentWait(),
	}
}

// sentence returns the sentence of the status, without the command that prints the sentence. If the status has no
// sentence, the method sentence returns the state of the object. The parameter isCurrent is false if the status may be
// out of date.
func (s *subject) sentence(isCurrent bool) string {
	own := fmt.Sprintf("; `millwright explain %s/%s -n %s`", s.kind, s.object.GetName(), s.object.GetNamespace())
	if said := Sentence(s.kind, s.object, s.operation); said != "" {
		return strings.ReplaceAll(said, own, "")
	}
	text := kindAndName(s.kind, s.object) + ": " + s.stateText()
	waiting := s.waitingMembers()
	switch {
	case s.workflowKind == "" || s.isIdleTextComplete:
		return text
	case len(waiting) > 0:
		blocked := list.CountWhere(waiting, func(m memberMachine) bool { return len(m.operation.BlockedBy) > 0 })
		return fmt.Sprintf("%s; %s in motion, %d of them blocked", text, phrase.CountText(len(waiting), "machine"), blocked)
	case s.hasNoStatus:
		return text + fmt.Sprintf(
			"; Millwright has written no status yet; the events may say why: `kubectl describe %s -n %s %s`",
			s.kind, s.object.GetNamespace(), s.object.GetName(),
		)
	case isCurrent:
		return text + "; it waits for nothing"
	default:
		return text + "; its status names no wait"
	}
}

// stateText returns the state of an object whose status has no sentence. For a class, stateText also says how many
// workers serve its provider.
func (s *subject) stateText() string {
	if s.workflowKind != run.KindMachineClass || s.pollerCount == nil {
		return s.idleText
	}
	return s.idleText + ", served by " + cmp.Or(
		phrase.TextIf(*s.pollerCount == 0, "no worker"),
		phrase.CountText(*s.pollerCount, "worker"),
	)
}

// Sentence returns the name of an object and the sentence waitsFor of its status; empty if the status has no sentence.
func Sentence(kind string, o metav1.Object, operation *v1alpha1.Operation) string {
	if operation == nil || operation.WaitsFor == "" {
		return ""
	}
	return kindAndName(kind, o) + ": " + operation.WaitsFor
}

func kindAndName(kind string, o metav1.Object) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + kubecli.KeyOfObject(o)
}

// isStatusOutdated reports whether the status observed an earlier generation of the object.
func (s *subject) isStatusOutdated() bool {
	return s.observedGeneration != 0 && s.observedGeneration != s.generation
}

// workflowResources returns the resources that a workflow of this kind and the workflows of its children read and
// write.
func workflowResources(kind run.Kind) []string {
	switch kind {
	case run.KindMachineDeployment, run.KindClusterAPIDeployment:
		return append([]string{"machinedeployments", "rolloutpolicies"}, workflowResources(run.KindMachineSet)...)
	case run.KindMachineSet, run.KindClusterAPISet:
		return append([]string{"machinesets"}, workflowResources(run.KindMachine)...)
	case run.KindMachine, run.KindClusterAPIDrain:
		return append([]string{
			"machines", "nodes", "pods", "poddisruptionbudgets", "persistentvolumeclaims", "volumeattachments",
			"machinedrainrules", "namespaces", "events",
		}, workflowResources(run.KindMachineClass)...)
	default:
		return []string{"machineclasses", "secrets", "leases"}
	}
}

// isAffectedBy reports whether the work on the object needs the requests that a problem is about. An object without a
// workflow needs no requests. Both API groups have machines, sets and deployments; a RolloutPolicy applies to both
// groups.
func (s *subject) isAffectedBy(p problems.Problem) bool {
	resource, _, _ := strings.Cut(p.Resource, ".")
	resource, _, _ = strings.Cut(resource, "/")
	isOfClusterAPI := s.workflowKind == run.KindClusterAPISet || s.workflowKind == run.KindClusterAPIDeployment
	switch {
	case s.workflowKind == "":
		return false
	case p.System.IsWorkloadCluster() && (!isOfClusterAPI || p.System != s.workloadCluster()):
		return false
	case isOfClusterAPI && p.APIGroup() == v1alpha1.GroupName && resource != "rolloutpolicies":
		return false
	case !isOfClusterAPI && p.APIGroup() == clusterv1.GroupVersion.Group:
		return false
	default:
		return resource == "" || slices.Contains(workflowResources(s.workflowKind), resource)
	}
}

// workloadCluster returns the workload cluster of an object of Cluster API.
func (s *subject) workloadCluster() problems.System {
	return problems.WorkloadClusterSystem(s.object.GetNamespace(), s.object.GetLabels()[clusterv1.ClusterNameLabel])
}

// tone returns the tone of the sentence. An object that waits only for time to pass is not stuck.
func (s *subject) tone() printers.Tone {
	isUnserved := s.workflowKind == run.KindMachineClass && s.pollerCount != nil && *s.pollerCount == 0
	if isUnserved || s.isStatusOutdated() || s.operation != nil && len(s.operation.BlockedBy) > 0 {
		return printers.ToneWarning
	}
	return printers.ToneGood
}

// waitingMembers returns the waiting machines: blocked machines first, then the other machines, each sorted by the
// length of the wait.
func (s *subject) waitingMembers() []memberMachine {
	waiting := list.Filter(s.members, func(m memberMachine) bool { return m.operation != nil })
	slices.SortStableFunc(waiting, func(a, b memberMachine) int {
		x, y := a.operation, b.operation
		return cmp.Or(list.CompareFalseFirst(len(x.BlockedBy) == 0, len(y.BlockedBy) == 0), x.Since.Compare(y.Since.Time))
	})
	return waiting
}

// writeTable writes a table of the machines that wait.
func (s *subject) writeTable(out io.Writer, now time.Time) error {
	waiting := s.waitingMembers()
	if len(waiting) == 0 {
		return nil
	}
	rows := [][]any{{"MACHINE", "STATUS", "STEP", "SINCE", "DEADLINE", "WAITS FOR"}}
	for _, m := range waiting[:min(len(waiting), maxMachineRows)] {
		o := m.operation
		rows = append(
			rows,
			[]any{
				m.name,
				printers.NewStateWord(m.status),
				o.Step,
				kubecli.AgeText(o.Since.Time, now),
				kubecli.ClockText(cache.TimeOrZero(o.Deadline), now),
				m.currentWait.Cause,
			},
		)
	}
	_, _ = fmt.Fprintln(out)
	if err := printers.WriteTable(out, rows); err != nil {
		return err
	}
	if rest := len(waiting) - maxMachineRows; rest > 0 {
		_, _ = fmt.Fprintf(out, "and %d more\n", rest)
	}
	return nil
}
