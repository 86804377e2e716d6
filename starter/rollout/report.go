package rollout

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"millwright/decide/phrase"
	"millwright/starter/explain"
	"millwright/starter/kubecli"
)

// Report is what the commands status and history say about one deployment, in parts that a page can show. Tables have
// their header in the first row; a table without rows is nil.
type Report struct {
	Waits    string       // sentence of explain; empty if the deployment waits for nothing
	State    string       // sentence about the rollout
	Facts    [][]any      // rows with the name and the text of a fact
	Steps    []ReportStep // steps of the rollout policy; nil if the policy has none
	Sets     [][]any      // table of the sets that have machines
	History  [][]any      // table of all revisions, the newest last
	Commands []string     // lines with a command that may help now: "To go on: millwright rollout resume shop/web"
}

// ReportStep is one step of a rollout.
type ReportStep struct {
	Size      int    // number of machines of the new revision after the step
	Gate      string // what ends the step
	IsPassed  bool   // the rollout is beyond the step
	IsCurrent bool   // the rollout is in the step
}

// ReadReport reads a deployment as the command status does, without its nodes. The API group may be empty, as in
// millwright rollout status NAMESPACE/NAME. actsAsMCM is true if worker and bridge run with --as-mcm.
func ReadReport(
	ctx context.Context,
	clients kubecli.Clients,
	apiGroup string,
	key types.NamespacedName,
	actsAsMCM bool,
	now func() time.Time,
) (Report, error) {
	l := deploymentReader{key: key, apiGroup: apiGroup, clients: clients, actsAsMCM: actsAsMCM, now: now}
	s, err := l.readSnapshot(ctx)
	if err != nil {
		return Report{}, err
	}
	return s.report(), nil
}

func (s snapshot) report() Report {
	r := Report{
		Waits:    explain.Sentence(s.tree.kind, s.tree.object, s.tree.operation),
		State:    s.statusSentence(),
		Facts:    s.factRows(),
		Steps:    s.reportSteps(),
		Commands: append(s.advice(), s.followCommands()...),
	}
	r.Sets, _ = s.setRows()
	if len(s.facts.Sets) > 0 {
		r.History = s.historyRows()
	}
	return r
}

// reportSteps returns the steps of the policy. If no rollout is open, no step is the current one, and the steps count as
// passed if the present revision is complete.
func (s snapshot) reportSteps() (steps []ReportStep) {
	record := s.progressRecord()
	for i, step := range s.facts.Steps {
		var gates []string
		if step.NeedsApproval {
			gates = append(gates, "approval")
		}
		if step.Wait > 0 {
			gates = append(gates, "wait "+phrase.DurationText(step.Wait))
		}
		steps = append(steps, ReportStep{
			Size:      s.stepSize(i),
			Gate:      strings.Join(gates, ", "),
			IsPassed:  s.decision.Complete || i < record.Step,
			IsCurrent: s.decision.Rolling && !s.decision.Complete && i == record.Step,
		})
	}
	return steps
}

// String returns the step as text, as in "2 machines, then approval".
func (r ReportStep) String() string {
	return phrase.CountText(r.Size, "machine") + phrase.TextIf(r.Gate != "", ", then %s", r.Gate)
}
