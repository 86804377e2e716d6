package rollout

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/starter/kubecli"
)

// helpOfRequests returns the help of the request commands for rollouts, the most used commands first.
func helpOfRequests() []kubecli.CommandHelp {
	return []kubecli.CommandHelp{
		{
			Name:  request.Start,
			Short: "Replace or update all machines, although the template stays the same",
			Long: `start writes the time into an annotation of the template and changes nothing else. This makes a new revision, which is rolled out like
any other. start is refused while the deployment is paused or its rollout is held.`,
			Example: `  millwright rollout start shop/web --reason "certificates of the nodes expire"`,
		},
		{
			Name:  request.Pause,
			Short: "Do not roll out any template until resume",
			Long: `pause sets spec.paused. A rollout stops where it is, and neither a new nor a former template is rolled out. A new number of replicas
still takes effect, and machines that fail are still replaced.`,
			Example: `  millwright rollout pause shop/web --reason "until Monday"`,
		},
		{
			Name:    request.Resume,
			Short:   "End a pause, and a hold",
			Long:    `resume clears spec.paused and removes what cancel wrote: the rollout continues where it stopped.`,
			Example: `  millwright rollout resume shop/web`,
		},
		{
			Name:  request.Cancel,
			Short: "Stop the rollout of this revision, or go back",
			Long: `cancel holds the current rollout where it is: machines of the old and of the new template stay. The hold lasts until resume, or until
there is another revision: a new template, or an undo. With --back, the deployment goes back at once, as undo does.`,
			Example: `  millwright rollout cancel shop/web --reason "machines do not join"
  millwright rollout cancel shop/web --back --reason "the image is bad"`,
		},
		{
			Name:  request.Undo,
			Short: "Go back to a former revision",
			Long: `undo sets spec.rollbackTo: the deployment gets the template of a former revision again, which is rolled out like any other. Without
--to-revision, it is the last revision whose rollout was complete, and the previous revision if none is on record. undo is refused
while the deployment is paused.
With --pin, the template stays as it is, and the machines return to the former revision until the template changes or a person retries.
That is the way where Flux or Argo CD would write the template again.`,
			Example: `  millwright rollout undo shop/web
  millwright rollout undo shop/web --pin --reason "8 is slow"
  millwright rollout undo shop/web --to-revision 5 --reason "6 leaks"`,
		},
		{
			Name:  request.Retry,
			Short: "Roll a revision out again that is pinned to a former one",
			Long: `retry ends what an automatic rollback or undo --pin began: the template, which has not changed, is rolled out again. Machines that
failed before do not count any more. A changed template needs no retry.`,
			Example: `  millwright rollout retry shop/web --reason "the quota is raised"`,
		},
		{
			Name:  request.Approve,
			Short: "Pass the step at which a rollout waits",
			Long: `approve ends the step that a rollout has reached, also a step that would end after its time. With --steps N, the first N steps of this
revision are passed, whether the rollout has reached them or not.`,
			Example: `  millwright rollout approve shop/web --reason "looks well"
  millwright rollout approve shop/web --steps 3`,
		},
	}
}

// effectOfRequest describes the effect of a request.
func effectOfRequest(r kubecli.Request, strategy string, f request.DeploymentFacts) string {
	switch {
	case r.Command == request.Pause:
		return "no template is rolled out until somebody resumes it; a new number of replicas takes effect, and machines that fail are replaced"
	case r.Command == request.Resume:
		return resumeEffect(f)
	case r.Command == request.Cancel && !r.RollsBack:
		return "machines of all templates stay, machines that fail are replaced, and a new number of replicas takes effect, until somebody resumes it or there is another revision"
	case r.Command == request.Approve && (f.Paused || f.HoldReason != ""):
		return "nothing, until somebody resumes it (millwright rollout resume " + f.Name + ")"
	case r.Command == request.Approve:
		return "the rollout continues"
	}
	what := cmp.Or(
		phrase.TextIf(r.Command == request.Start, "another revision of the template is"),
		phrase.TextIf(r.Command == request.Retry, "the template is again"),
		"the template of that revision returns, and is",
	)
	text := fmt.Sprintf("%s rolled out with the strategy %s", what, strategy)
	switch {
	case r.PinsMachines:
		text = "the machines return to that revision, without rollout steps, and the template stays"
	case f.NextRolloutStepCount > 0:
		text += fmt.Sprintf(", in steps: %d", f.NextRolloutStepCount)
	}
	return text
}

// resumeEffect describes what continues after a resume.
func resumeEffect(f request.DeploymentFacts) string {
	switch {
	case f.RollbackTo != nil:
		return "the deployment returns to the revision that was requested meanwhile"
	case f.Rolling || f.Revision == 0:
		return "the rollout continues where it stopped"
	default:
		return "the next change of the template is rolled out"
	}
}

// undoCommandText returns the command that undoes a request; empty if no command does.
func undoCommandText(r kubecli.Request, f request.DeploymentFacts) string {
	switch {
	case r.PinsMachines:
		return "millwright rollout retry " + f.Name
	case r.Command == request.Start:
		return "millwright rollout undo " + f.Name
	case r.Command == request.Pause, r.Command == request.Cancel && !r.RollsBack:
		return "millwright rollout resume " + f.Name
	case r.Command == request.Resume && f.Paused:
		return "millwright rollout pause " + f.Name
	case (r.Command == request.Undo || r.Command == request.Cancel) && f.Revision > 0:
		return fmt.Sprintf("millwright rollout undo %s --to-revision %d", f.Name, f.Revision)
	default:
		return ""
	}
}

// readSubject reads the deployment of a request, and the facts on which the decision about the request depends.
func (f *rolloutCommand) readSubject(
	ctx context.Context,
	clients kubecli.Clients,
	now time.Time,
	key types.NamespacedName,
	r kubecli.Request,
) (s kubecli.Subject, err error) {
	from, _, err := deploymentReader{key: key, apiGroup: f.Group, clients: clients}.readDeploymentWithPolicies(ctx)
	if err != nil {
		return s, err
	}
	shown, observed := from.asTree(now), from.rolloutFacts(now)
	facts := from.requestFacts(observed, rollout.Decide(observed))
	s = kubecli.Subject{Object: shown.object, Facts: facts}
	named := facts
	named.Name = shown.argument
	s.DescribeEffect = func(d request.Decision) (next, back, follow string) {
		next = effectOfRequest(r, shown.strategy, named)
		if warning := gitOpsWarning(shown.object); d.RollbackTo != nil && warning != "" {
			next += "; " + warning
		}
		return next, undoCommandText(r, named), "millwright rollout watch " + named.Name
	}
	s.SendPatch, s.BuildPatch = from.patchDeployment, from.patchBuilder()
	return s, nil
}

// gitOpsManagers maps the beginning of a field manager's name to its tool, which applies the spec in Git again.
// Sources: Argo CD's default field manager, and the names of the controllers of Flux.
var gitOpsManagers = []struct{ prefix, tool string }{
	{"argocd-", "Argo CD"}, {"kustomize-controller", "Flux"}, {"helm-controller", "Flux"},
}

// gitOpsWarning warns that a GitOps tool owns the template of a deployment and will undo an edit of the template; empty
// if the managed fields show no GitOps tool.
func gitOpsWarning(o metav1.Object) string {
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource != "" || entry.FieldsV1 == nil ||
			!strings.Contains(entry.FieldsV1.GetRawString(), `"f:template"`) {
			continue
		}
		for _, m := range gitOpsManagers {
			if strings.HasPrefix(entry.Manager, m.prefix) {
				return fmt.Sprintf(
					"%s manages the template (field manager %s): it applies the template in Git again, and the rollout begins again; "+
						"change the template in Git, or use --pin", m.tool, entry.Manager,
				)
			}
		}
	}
	return ""
}
