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
	"millwright/api/vocabulary"
	"millwright/decide/explain"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

// pool is a deployment, a set without a deployment, or a machine without a set.
type pool struct{ namespace, object string } // object: KIND/NAME

// name returns the name of a pool for a table. Only the name of a deployment of Millwright's own kind has no kind.
func (p pool) name() string {
	kind, name, _ := strings.Cut(p.object, "/")
	if kind == "mcd" {
		return p.namespace + "/" + name
	}
	return p.namespace + "/" + name + " (" + strings.TrimSuffix(kind, "."+clusterv1.GroupVersion.Group) + ")"
}

// poolTree finds the pool of each object, and counts the machines of each pool.
type poolTree struct {
	owners   map[pool]pool // the controller of each set and machine that has one
	known    map[pool]bool // the objects that exist and that the user may read
	machines map[pool]int  // the machines of a pool, also those that wait for nothing
}

func newPoolTree() poolTree {
	return poolTree{owners: map[pool]pool{}, known: map[pool]bool{}, machines: map[pool]int{}}
}

// add adds an object. The parameter kind is the kind in the names of the list, such as mcs or machine.cluster.x-k8s.io.
func (t poolTree) add(kind string, o metav1.Object) {
	object := pool{o.GetNamespace(), kind + "/" + o.GetName()}
	t.known[object] = true
	if owner := metav1.GetControllerOf(o); owner != nil {
		t.owners[object] = pool{o.GetNamespace(), listedKind(owner) + "/" + owner.Name}
	}
}

// countMachines counts the machines of each pool, once all objects are added.
func (t poolTree) countMachines() {
	for object := range t.known {
		if object.isMachine() {
			t.machines[t.poolOf(object)]++
		}
	}
}

// listedKind returns the kind of a controller as the list shows it.
func listedKind(owner *metav1.OwnerReference) string {
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	switch {
	case group == clusterv1.GroupVersion.Group:
		return strings.ToLower(owner.Kind) + "." + group
	case owner.Kind == cache.KindDeployment:
		return "mcd"
	case owner.Kind == cache.KindSet:
		return "mcs"
	default:
		return owner.Kind
	}
}

// poolOf returns the pool of an object: its topmost controller that exists.
func (t poolTree) poolOf(object pool) pool {
	for {
		owner, owned := t.owners[object]
		if !owned || !t.known[owner] {
			return object
		}
		object = owner
	}
}

// isMachine reports whether the object is a machine, of Millwright or of Cluster API.
func (p pool) isMachine() bool {
	return strings.HasPrefix(p.object, "mc/") || strings.HasPrefix(p.object, "machine.")
}

// WaitsOf returns the waits of an operation; nil if it waits for nothing. A MachineSet of Cluster API, and a status that
// an earlier version wrote, have no field for the waits: then there is one wait, whose cause is the whole sentence.
func WaitsOf(o *v1alpha1.Operation) []v1alpha1.Wait {
	switch {
	case o == nil || len(o.BlockedBy) == 0 && cmp.Or(o.WaitsFor, o.Cause) == "":
		return nil
	case len(o.Waits) > 0:
		return o.Waits
	}
	return []v1alpha1.Wait{{
		BlockedBy: o.BlockedBy,
		Cause:     cmp.Or(o.WaitsFor, o.Cause, strings.Join(o.BlockedBy, ", ")),
		Since:     o.Since,
		NextAt:    o.Deadline,
	}}
}

// OwnWaitsOf returns the blocked waits of a set or a deployment that its machines do not have. The parameter
// blocksMachine reports whether a blocker of the pool's machines has this reason. The status of a machine is newer than
// the status of its pool, or older: a wait of machines that no machine has is the pool's own.
func OwnWaitsOf(o *v1alpha1.Operation, blocksMachine func(reason string) bool) []v1alpha1.Wait {
	return list.Filter(WaitsOf(o), func(w v1alpha1.Wait) bool {
		mayBeOfMachine := w.Machines > 0 || len(o.Waits) == 0
		return len(w.BlockedBy) > 0 && !(mayBeOfMachine && slices.ContainsFunc(w.BlockedBy, func(blocker string) bool {
			return blocksMachine(explain.ReasonOfBlocker(blocker))
		}))
	})
}

// PoolWait is a blocked wait of a pool, or of one of its machines. P names a pool.
type PoolWait[P comparable] struct {
	Pool     P
	Machine  string // name of the machine; empty: the pool itself waits
	Wait     v1alpha1.Wait
	Sentence string // the wait as a sentence; empty if the caller shows the parts of the wait
}

// waitSentence returns one wait of an operation as a sentence of its status.
func waitSentence(o *v1alpha1.Operation, w v1alpha1.Wait, now time.Time) string {
	if len(o.Waits) == 0 { // the cause is the whole sentence
		return w.Cause
	}
	return explain.WaitState{
		Cause: w.Cause, Since: w.Since.Time, Command: w.Command,
		NextEvent:     explain.Event{PhraseForms: explain.PhraseForms{Singular: w.Next}},
		NextEventTime: cache.TimeOrZero(w.NextAt),
	}.Sentence(now)
}

// Cause is what blocks one or more pools. P names a pool.
type Cause[P comparable] struct {
	Short       string // the blocker in a few words
	Text        string // why the pools wait; Short if they have different texts
	Next        string // what happens without a person; empty: nothing, or the pools have different events
	Commands    []string
	NeedsPerson bool      // the cause does not end without a person
	Since       time.Time // beginning of the oldest wait
	NextAt      time.Time // when the next event happens; zero: never, or unknown
	TimesDiffer bool      // NextAt is the first of several times
	Machines    int       // machines that the cause blocks; zero: the cause blocks the pools themselves
	Pools       []*BlockedPool[P]
	First       PoolWait[P]
}

// BlockedPool is a pool that a cause blocks.
type BlockedPool[P comparable] struct {
	Pool     P
	Machines int       // machines that the cause blocks; zero: the cause blocks the pool itself
	Since    time.Time // beginning of the oldest wait
	NextAt   time.Time // the next event; zero: none
}

// GroupByCause returns the causes of blocked waits: first the causes that need a person, then those of the most pools,
// then the oldest. The waits of machines with the same blockers and the same text have one cause, and so have the waits
// of pools with the same reason.
func GroupByCause[P comparable](waits []PoolWait[P], now time.Time) []*Cause[P] {
	type key struct {
		isMachine bool
		blockers  string
		text      string
	}
	var causes []*Cause[P]
	byKey := map[key]*Cause[P]{}
	for _, w := range waits {
		k := key{w.Machine != "", strings.Join(w.Wait.BlockedBy, "\x00"), w.Wait.Cause}
		if w.Machine == "" {
			k.blockers, k.text = explain.ReasonOfBlocker(w.Wait.BlockedBy[0]), ""
		}
		c := byKey[k]
		if c == nil {
			c = &Cause[P]{
				Short:       explain.WaitState{Blockers: w.Wait.BlockedBy}.ShortText(now),
				Text:        w.Wait.Cause,
				Next:        w.Wait.Next,
				NextAt:      cache.TimeOrZero(w.Wait.NextAt),
				NeedsPerson: needsPerson(w.Wait.BlockedBy),
				First:       w,
			}
			causes, byKey[k] = append(causes, c), c
		}
		c.add(w)
	}
	slices.SortStableFunc(causes, func(a, b *Cause[P]) int {
		return cmp.Or(
			-list.CompareFalseFirst(a.NeedsPerson, b.NeedsPerson),
			cmp.Compare(len(b.Pools), len(a.Pools)),
			a.Since.Compare(b.Since),
		)
	})
	return causes
}

// add adds a wait to its cause.
func (c *Cause[P]) add(w PoolWait[P]) {
	if w.Wait.Cause != c.First.Wait.Cause {
		c.Text = c.Short
	}
	if w.Wait.Next != c.First.Wait.Next {
		c.Next = ""
	}
	at := cache.TimeOrZero(w.Wait.NextAt)
	c.TimesDiffer = c.TimesDiffer || !at.Equal(cache.TimeOrZero(c.First.Wait.NextAt))
	c.Since, c.NextAt = phrase.EarlierTime(c.Since, w.Wait.Since.Time), phrase.EarlierTime(c.NextAt, at)
	if w.Wait.Command != "" && !slices.Contains(c.Commands, w.Wait.Command) {
		c.Commands = append(c.Commands, w.Wait.Command)
	}
	i := slices.IndexFunc(c.Pools, func(p *BlockedPool[P]) bool { return p.Pool == w.Pool })
	if i < 0 {
		i = len(c.Pools)
		c.Pools = append(c.Pools, &BlockedPool[P]{Pool: w.Pool})
	}
	p := c.Pools[i]
	p.Since, p.NextAt = phrase.EarlierTime(p.Since, w.Wait.Since.Time), phrase.EarlierTime(p.NextAt, at)
	if w.Machine != "" {
		c.Machines++
		p.Machines++
	}
}

// needsPerson reports whether a wait does not end without a person. A pool that was rolled back does not roll its
// template out again by itself.
func needsPerson(blockers []string) bool {
	isRollback := func(name string) bool { return name == vocabulary.ReasonRolledBack || name == vocabulary.ReasonPinned }
	return explain.NeedsPerson(blockers) || slices.ContainsFunc(blockers, isRollback)
}

// causes returns the causes of blocked objects. A set below a deployment has a cause of its own only if nothing else of
// its pool is blocked.
func (m activeObjects) causes() []*Cause[pool] {
	var waits []PoolWait[pool]
	reasons := map[pool]map[string]bool{} // the reasons that block each pool's machines
	isShown := map[pool]bool{}            // the pools with a blocked machine, or that are blocked themselves
	for _, o := range m.objects {
		if len(o.Operation.BlockedBy) == 0 {
			continue
		}
		isShown[o.pool] = isShown[o.pool] || o.key().isMachine() || o.key() == o.pool
		if !o.key().isMachine() {
			continue
		}
		for _, w := range WaitsOf(o.Operation) {
			waits = append(waits, PoolWait[pool]{o.pool, o.Object, w, waitSentence(o.Operation, w, m.now)})
		}
		if reasons[o.pool] == nil {
			reasons[o.pool] = map[string]bool{}
		}
		for _, blocker := range o.Operation.BlockedBy {
			reasons[o.pool][explain.ReasonOfBlocker(blocker)] = true
		}
	}
	for _, o := range m.objects {
		if o.key().isMachine() || o.key() != o.pool && isShown[o.pool] {
			continue
		}
		for _, w := range OwnWaitsOf(o.Operation, func(reason string) bool { return reasons[o.pool][reason] }) {
			waits = append(waits, PoolWait[pool]{o.pool, "", w, waitSentence(o.Operation, w, m.now)})
		}
	}
	return GroupByCause(waits, m.now)
}

// busyPool is a pool that has work in progress, and that nothing blocks.
type busyPool struct {
	pool

	machines int // machines with work in progress
	since    time.Time
	text     string // what is in progress, in a few words
}

// busyPools returns the pools with work in progress that are not blocked, in the order of the objects.
func (m activeObjects) busyPools() []*busyPool {
	blocked := map[pool]bool{}
	for _, o := range m.objects {
		if len(o.Operation.BlockedBy) > 0 {
			blocked[o.pool] = true
		}
	}
	var pools []*busyPool
	byPool := map[pool]*busyPool{}
	for _, o := range m.objects {
		if blocked[o.pool] {
			continue
		}
		p := byPool[o.pool]
		if p == nil {
			p = &busyPool{pool: o.pool, since: o.Operation.Since.Time}
			pools, byPool[o.pool] = append(pools, p), p
		}
		if o.key().isMachine() {
			p.machines++
		}
		if isOwn := o.key() == o.pool; isOwn || p.text == "" {
			p.text = cmp.Or(o.Operation.Summary, o.Operation.WaitsFor, o.Operation.Step)
		}
	}
	return pools
}

// writeCauses writes the causes, each with a line for each of its pools and with its sentence, and then a line for each
// other pool in motion.
func (m activeObjects) writeCauses(out io.Writer) error {
	causes, busy := m.causes(), m.busyPools()
	for _, c := range causes {
		if _, err := fmt.Fprintf(
			out,
			"\n%s  %s\n",
			printers.Paint(out, printers.ToneWarning, "BLOCKED"),
			c.Short,
		); err != nil {
			return err
		}
		if err := printers.WriteTable(out, list.Map(c.Pools, m.rowOfBlockedPool)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "    %s\n", c.First.Sentence); err != nil {
			return err
		}
	}
	if len(busy) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(out, "\n%s\n", printers.Paint(out, printers.ToneGood, "IN MOTION")); err != nil {
		return err
	}
	return printers.WriteTable(out, list.Map(busy, func(p *busyPool) []any {
		return []any{
			"  " + p.name(), m.countText(p.pool, p.machines), kubecli.AgeText(p.since, m.now), p.text,
		}
	}))
}

// rowOfBlockedPool returns the line of a pool below its cause.
func (m activeObjects) rowOfBlockedPool(p *BlockedPool[pool]) []any {
	until := "until a person acts"
	if !p.NextAt.IsZero() {
		until = "until " + kubecli.ClockText(p.NextAt, m.now)
	}
	return []any{
		"  " + p.Pool.name(),
		m.countText(p.Pool, p.Machines),
		phrase.TextIf(!p.Since.IsZero(), "for %s", kubecli.AgeText(p.Since, m.now)),
		until,
	}
}

// countText returns a number of machines of a pool; empty if no machine waits, or if the pool is a machine.
func (m activeObjects) countText(p pool, machines int) string {
	if machines == 0 || p.isMachine() {
		return ""
	}
	return fmt.Sprintf("%d of %s", machines, phrase.CountText(m.pools.machines[p], "machine"))
}
