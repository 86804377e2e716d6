package explain

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/process/problems"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

// TopCommand returns the command top.
func TopCommand(e kubecli.Environment) *cobra.Command {
	x := &explainCommand{ObjectFlags: kubecli.ObjectFlags{Environment: e, Kind: "objects"}}
	var all, blocked, watch bool
	var output printers.OutputFormat
	var interval time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Show what blocks pools, and the other pools in motion",
		Long: `top shows the pools that have work in progress. A pool is a deployment, a set without a deployment, or a machine without a set. First
comes each cause that blocks something, with one line for each pool: how many of its machines wait, for how long, and until when. The
sentence below the lines says why, what happens without a person, and which command changes it. Then come the other pools in motion. top
reads the API server alone. Of Cluster API, it shows the deployments and sets that Millwright reconciles.

The other formats list each machine, set and deployment: blocked objects first, then those that have waited longest.

Without worker and bridge nobody writes a status. So top reads their heartbeats, too: it says if one is overdue, and the exit code is 1 if
no worker or no bridge is at work. While Temporal does not answer, no worker is at work. top begins with a line for each worker or bridge
that may not or cannot do all of its work; the exit code is then 1, too.

With --watch it reads again and again until Ctrl-C. If the output is not a terminal, it then prints a line for each change of the numbers.`,
		Example: `  millwright top -A
  millwright top -n shop --blocked --watch
  millwright top -A --blocked -o name | xargs -n 1 millwright explain`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if all {
				x.Namespace = metav1.NamespaceAll
			}
			clients, err := x.NewClients(x.ClusterAccess)
			if err != nil {
				return err
			}
			read := func(ctx context.Context) (activeObjects, error) { return x.readActiveObjects(ctx, clients, blocked) }
			if !watch {
				m, err := read(c.Context())
				if err != nil {
					return err
				}
				if err := m.writeList(c.OutOrStdout(), output); err != nil {
					return err
				}
				return m.downProcessError()
			}
			w := printers.WatchPrinter{Out: c.OutOrStdout(), IsTerminal: printers.IsTerminal(c.OutOrStdout())}
			return printers.FollowObject(c.Context(), interval, read, func(m activeObjects, err error) (bool, error) {
				if err != nil {
					w.PrintChange(x.Now(), err.Error())
					return false, nil
				}
				var frame bytes.Buffer
				_ = m.writeList(&frame, output) // a write to a buffer never fails
				w.DrawFrame(m.now, frame.String(), m.summary())
				return false, nil
			})
		},
	}
	x.RegisterFlags(c)
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "objects of all namespaces")
	c.Flags().BoolVar(&blocked, "blocked", false, "only blocked objects")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "read again and again")
	output.RegisterFlag(c)
	c.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two reads")
	return c
}

// activeObjects are the objects that have work in progress at one moment.
type activeObjects struct {
	objects   []activeObject // in the order of the list
	pools     poolTree
	namespace string // namespace of the objects; empty: all namespaces
	elsewhere int    // objects in motion in other namespaces, if none is in motion in the namespace
	unseen    int    // deployments and sets of MCM's kinds that changed, and whose status is of an earlier generation
	now       time.Time
	// sentences that say which process is down and since when; the statuses have not been updated since then
	downSentences []string
	// clauses about processes that are down, overdue or unknown; without ages, because an age changes all the time
	processWarnings []string
	problemLines    []string // one line for each process with problems
}

type activeObject struct {
	Namespace string              `json:"namespace"`
	Object    string              `json:"object"` // KIND/NAME
	Pool      string              `json:"pool"`   // KIND/NAME of the deployment, or of the set or machine without one
	Operation *v1alpha1.Operation `json:"operation"`

	pool pool
}

// key returns the name of the object itself.
func (o activeObject) key() pool { return pool{o.Namespace, o.Object} }

// readActiveObjects reads all objects that have work in progress.
func (x *explainCommand) readActiveObjects(
	ctx context.Context,
	clients kubecli.Clients,
	blocked bool,
) (activeObjects, error) {
	found := activeObjects{now: x.Now(), namespace: x.Namespace}
	found.addHeartbeats(ctx, clients.Leases)
	if err := found.addObjects(ctx, clients, blocked); err != nil {
		return found, err
	}
	if len(found.objects) == 0 && found.namespace != "" {
		elsewhere := activeObjects{now: found.now}
		if elsewhere.addObjects(ctx, clients, blocked) == nil { // the user may have rights in the namespace alone
			found.elsewhere = len(elsewhere.objects)
		}
	}
	return found, nil
}

// addObjects reads the objects of the namespace that have work in progress.
func (m *activeObjects) addObjects(ctx context.Context, clients kubecli.Clients, blocked bool) error {
	api := clients.MachineClient.MachineV1alpha1()
	m.objects, m.pools = []activeObject{}, newPoolTree()
	add := func(kind string, o metav1.Object, operation *v1alpha1.Operation) {
		m.pools.add(kind, o)
		if operation != nil && (!blocked || len(operation.BlockedBy) > 0) {
			m.objects = append(m.objects, activeObject{
				Namespace: o.GetNamespace(), Object: kind + "/" + o.GetName(), Operation: operation,
			})
		}
	}
	deployments, err := api.MachineDeployments(m.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machine deployments: %w", err)
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		m.countUnseen(d.Generation, d.Status.ObservedGeneration)
		add("mcd", d, d.Status.CurrentOperation)
	}
	sets, err := api.MachineSets(m.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machine sets: %w", err)
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		m.countUnseen(set.Generation, set.Status.ObservedGeneration)
		add("mcs", set, set.Status.CurrentOperation)
	}
	machines, err := api.Machines(m.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	for i := range machines.Items {
		add("mc", &machines.Items[i], machines.Items[i].Status.CurrentOperation)
	}
	m.addClusterAPIObjects(ctx, clients, m.namespace, add)
	m.pools.countMachines()
	for i := range m.objects {
		o := &m.objects[i]
		o.pool = m.pools.poolOf(o.key())
		o.Pool = o.pool.object
	}
	slices.SortStableFunc(m.objects, func(a, b activeObject) int {
		return cmp.Or(
			list.CompareFalseFirst(
				len(a.Operation.BlockedBy) == 0,
				len(b.Operation.BlockedBy) == 0,
			),
			a.Operation.Since.Compare(b.Operation.Since.Time),
			strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Object, b.Object),
		)
	})
	return nil
}

// countUnseen counts an object whose status is of an earlier generation.
func (m *activeObjects) countUnseen(generation, observed int64) {
	if observed < generation {
		m.unseen++
	}
}

// addHeartbeats reads the heartbeats of the workers and the bridges. If the workers or the bridges are down, no status
// is updated.
func (m *activeObjects) addHeartbeats(ctx context.Context, leases typedcoordinationv1.LeasesGetter) {
	if leases == nil {
		return
	}
	for _, h := range ReadHeartbeats(ctx, leases, metav1.NamespaceAll, m.now) {
		for _, report := range h.Reports {
			m.addProblemLine(h.Process, report)
		}
		switch {
		case h.MissingMessage != "":
			m.downSentences = append(m.downSentences, h.MissingMessage)
			m.processWarnings = append(
				m.processWarnings,
				fmt.Sprintf(
					"no %s is at work%s",
					h.Process,
					phrase.TextIf(!h.RenewTime.IsZero(), " since %s", kubecli.ClockText(h.RenewTime, m.now)),
				),
			)
		default:
			m.processWarnings = append(m.processWarnings, phrase.NonEmptyTexts(h.DoubtText(m.now))...)
		}
	}
}

// addProblemLine adds a line with the first problem of a process, and the number of its other problems.
func (m *activeObjects) addProblemLine(process string, report problems.Report) {
	first, more := report.Problems[0], len(report.Problems)-1
	m.problemLines = append(m.problemLines, fmt.Sprintf(
		"%s %s, since %s: %s%s; `millwright doctor` says what to do",
		process,
		report.Identity,
		kubecli.ClockText(first.FirstFailure, m.now),
		first.Text(process),
		phrase.TextIf(more > 0, "; and %s", phrase.CountText(more, "other problem")),
	))
	m.processWarnings = append(
		m.processWarnings,
		fmt.Sprintf("%s %s has %s", process, report.Identity, phrase.CountText(len(report.Problems), "problem")),
	)
}

// downProcessError returns an error if the workers or the bridges are down, or if a process has problems.
func (m activeObjects) downProcessError() error {
	switch {
	case len(m.downSentences) > 0:
	case len(m.problemLines) > 0:
		return fmt.Errorf("what is in motion now is not known for certain: %s", strings.Join(m.problemLines, "; "))
	default:
		return nil
	}
	return fmt.Errorf(
		"what is in motion now is not known: %s `millwright doctor` says what to do",
		strings.Join(m.downSentences, " "),
	)
}

// writeList writes the list. In the formats of tables, the summary comes first.
func (m activeObjects) writeList(out io.Writer, output printers.OutputFormat) error {
	l := printers.Listing{
		Items:       m.objects,
		Table:       [][]any{{"NAMESPACE", "OBJECT", "STEP", "SINCE", "DEADLINE", "WAITS FOR"}},
		WideColumns: [][]any{{"WORKFLOW"}},
		EmptyText:   m.summary(),
	}
	isTable := output == printers.OutputTable || output == printers.OutputWide
	if len(m.problemLines) > 0 && isTable {
		if _, err := fmt.Fprintln(out, strings.Join(m.problemLines, "\n")); err != nil {
			return err
		}
	}
	if len(m.objects) > 0 && isTable {
		if _, err := fmt.Fprintln(out, m.summary()); err != nil {
			return err
		}
	}
	if len(m.objects) > 0 && output == printers.OutputTable {
		return m.writeCauses(out)
	}
	for _, o := range m.objects {
		operation := o.Operation
		kind, name, _ := strings.Cut(o.Object, "/")
		l.Names, l.WideColumns = append(
			l.Names,
			kind+"/"+o.Namespace+"/"+name,
		), append(
			l.WideColumns,
			[]any{operation.WorkflowID},
		)
		l.Table = append(l.Table, []any{
			o.Namespace,
			o.Object,
			operation.Step,
			kubecli.AgeText(operation.Since.Time, m.now),
			kubecli.ClockText(cache.TimeOrZero(operation.Deadline), m.now),
			cmp.Or(operation.Summary, operation.WaitsFor),
		})
	}
	return output.Write(out, l)
}

// summary counts the pools with work in progress, and explains why the counts may be wrong.
func (m activeObjects) summary() string {
	pools, blocked := map[pool]bool{}, map[pool]bool{}
	for _, o := range m.objects {
		pools[o.pool] = true
		if len(o.Operation.BlockedBy) > 0 {
			blocked[o.pool] = true
		}
	}
	text := fmt.Sprintf("%s in motion, %d of them blocked", phrase.CountText(len(pools), "pool"), len(blocked))
	switch {
	case len(m.objects) > 0:
	case len(m.downSentences) > 0 || len(m.problemLines) > 0:
		text = "no status says that something is in motion"
	case m.namespace != "":
		text = fmt.Sprintf("nothing is in motion in namespace %s", m.namespace) +
			phrase.TextIf(
				m.elsewhere > 0,
				"; %s in other namespaces: `millwright top -A`",
				phrase.CountText(m.elsewhere, "object"),
			)
	default:
		text = "nothing is in motion"
	}
	unseen := phrase.TextIf(
		m.unseen > 0,
		"%s changed, and no status says that Millwright has seen it",
		phrase.CountText(m.unseen, "object"),
	)
	return strings.Join(phrase.NonEmptyTexts(append([]string{text, unseen}, m.processWarnings...)...), "; ")
}
