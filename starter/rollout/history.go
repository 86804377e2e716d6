package rollout

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"millwright/decide/phrase"
	"millwright/decide/rollout"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

func (f *rolloutCommand) historyCommand() *cobra.Command {
	var revision int64
	var output printers.OutputFormat
	c := &cobra.Command{
		Use:   "history DEPLOYMENT",
		Short: "List the revisions of a deployment, or show the template of one",
		Long: `history lists the sets of a deployment by revision, the newest last. A template that was rolled out again has a new revision; column
FORMERLY has its former revisions. CHANGE-CAUSE is the deployment's annotation kubernetes.io/change-cause from the time of the revision.
If the revision was pinned to an earlier revision, CHANGE-CAUSE also says why and since when.

--revision prints the template of a revision as YAML, in the form of the deployment's spec.template; with -o json or yaml, the template is a
field beside its revision and set.`,
		Example: `  millwright rollout history shop/web
  millwright rollout history shop/web --revision 6`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.readSnapshot(c, args)
			switch {
			case err != nil:
				return err
			case c.Flags().Changed("revision"):
				return s.writeTemplate(c.OutOrStdout(), revision, output)
			default:
				return s.writeHistory(c.OutOrStdout(), output)
			}
		},
	}
	c.Flags().Int64Var(&revision, "revision", 0, "show the template of this revision")
	output.RegisterFlag(c)
	return c
}

// setIndicesByRevision returns the indices of the sets, the newest revision last.
func (s snapshot) setIndicesByRevision() []int {
	list := make([]int, len(s.facts.Sets))
	for i := range list {
		list[i] = i
	}
	slices.SortStableFunc(
		list,
		func(a, b int) int { return cmp.Compare(s.facts.Sets[a].Revision, s.facts.Sets[b].Revision) },
	)
	return list
}

// writeHistory writes the table of revisions.
func (s snapshot) writeHistory(out io.Writer, output printers.OutputFormat) error {
	answers := s.revisionAnswers()
	l := printers.Listing{
		Items: answers, EmptyText: fmt.Sprintf("deployment %s has no revision yet", s.key()), Table: s.historyRows(),
	}
	for _, a := range answers {
		l.Names = append(l.Names, s.tree.setResource+"/"+s.tree.object.GetNamespace()+"/"+a.Set)
	}
	return output.Write(out, l)
}

// historyRows returns the header and a row for each revision, the newest revision last.
func (s snapshot) historyRows() [][]any {
	rows := [][]any{
		{
			"REVISION",
			"FORMERLY",
			"SET",
			"CREATED",
			"REPLICAS",
			strings.ToUpper(s.tree.templateWord),
			"CURRENT",
			"CHANGE-CAUSE",
		},
	}
	for _, a := range s.revisionAnswers() {
		rows = append(rows, []any{
			revisionCell(a.Revision),
			strings.Join(a.Formerly, ","),
			a.Set,
			phrase.ClockText(a.CreatedAt, s.now),
			a.Replicas,
			a.Template,
			yesOrEmptyCell(a.Current),
			strings.Join(phrase.NonEmptyTexts(a.ChangeCause, kubecli.CollapseSpaces(a.Failed)), "; "),
		})
	}
	return rows
}

// writeTemplate writes the template of a revision. If no set has the revision now, writeTemplate uses a set that had
// the revision formerly.
func (s snapshot) writeTemplate(out io.Writer, revision int64, output printers.OutputFormat) error {
	i := slices.IndexFunc(
		s.facts.Sets,
		func(set rollout.MachineSet) bool { return revision != 0 && set.Revision == revision },
	)
	note := ""
	if i < 0 {
		i = slices.IndexFunc(s.facts.Sets, func(set rollout.MachineSet) bool {
			return slices.Contains(strings.Split(set.History, ","), strconv.FormatInt(revision, 10))
		})
		if i < 0 {
			return s.revisionNotFoundError(revision)
		}
		note = fmt.Sprintf(", which is revision %d now", s.facts.Sets[i].Revision)
	}
	set := s.tree.Sets[i]
	if output == printers.OutputJSON || output == printers.OutputYAML {
		return output.Encode(out, templateAnswer{s.facts.Sets[i].Revision, set.name, s.source.templateOfSet(i)})
	}
	text, err := yaml.Marshal(s.source.templateOfSet(i))
	if err != nil {
		return fmt.Errorf("write the template of set %s: %w", set.name, err)
	}
	_, err = fmt.Fprintf(out, "# revision %d of %s%s: set %s\n%s", revision, s.key(), note, set.name, text)
	return err
}

func (s snapshot) revisionNotFoundError(revision int64) error {
	var have []string
	for _, i := range s.setIndicesByRevision() {
		if n := s.facts.Sets[i].Revision; n != 0 {
			have = append(have, strconv.FormatInt(n, 10))
		}
	}
	if len(have) == 0 {
		return fmt.Errorf("deployment %s has no revision %d: it has none yet", s.key(), revision)
	}
	return fmt.Errorf("deployment %s has no revision %d: it has %s", s.key(), revision, strings.Join(have, ", "))
}
