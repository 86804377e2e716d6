package drain

import (
	"context"
	"time"

	"go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/types"

	"millwright/decide/drain"
	"millwright/starter/kubecli"
)

// Report is what the command explain says about one deletion or drain, in parts that a page can show.
type Report struct {
	Headline  string         // machine, node, stage and means
	Statement string         // sentence about the step: what it waits for, and what happens next and when
	Commands  []string       // commands that change the step, as the command line of millwright or kubectl
	Pods      []drain.PodRow // pods that the drain waits for, those that may need a person first
	PodCounts string         // numbers of the pods by state; empty if the pods are not known
	Result    string         // how the drain ended; empty if it has not ended
	Note      string         // why a fact is not known; empty if all facts are known
}

// ReadReport reads a machine that is being deleted or whose node is being drained, and the progress of the step from
// Temporal. A nil Temporal client means that Temporal is not asked. Of a machine of neither kind, ReadReport returns an
// error.
func ReadReport(
	ctx context.Context,
	clients kubecli.Clients,
	temporal client.Client,
	temporalAddress string,
	key types.NamespacedName,
	now func() time.Time,
) (Report, error) {
	r := machineReader{key: key, clients: clients, temporal: temporal, temporalAddress: temporalAddress, now: now}
	s, err := r.readSnapshot(ctx)
	if err != nil {
		return Report{}, err
	}
	return s.report(), nil
}

func (s snapshot) report() Report {
	said := s.statement()
	r := Report{
		Headline:  s.headline(),
		Statement: said.text,
		Commands:  said.commands,
		Result:    s.resultText(),
		Note:      s.unknownFactNote,
	}
	if s.podOverview != nil {
		r.Pods, r.PodCounts = s.podOverview.Rows, podCountsText(s.podOverview.Counts)
	}
	return r
}
