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

// cause is what blocks one or more pools.
type cause struct {
	short       string // the blocker in a few words
	sentence    string // the sentence of the first object that waits
	needsPerson bool   // the cause does not end without a person
	pools       []*blockedPool
}

// blockedPool is a pool that a cause blocks.
type blockedPool struct {
	pool

	machines int       // machines that the cause blocks; zero: the cause blocks the pool itself
	since    time.Time // beginning of the oldest wait
	deadline time.Time // the next event; zero: none
}

// causes returns the causes of blocked objects: first the causes that need a person, then the others in the order of the
// objects. Objects with the same first blocker and the same reason have one cause. A set below a deployment has no cause
// of its own, and a pool has none for a blocker of its machines.
func (m activeObjects) causes() []*cause {
	type key struct{ blocker, text string }
	var causes []*cause
	byKey := map[key]*cause{}
	fromMachines := map[pool]map[string]bool{} // the blockers of each pool's machines
	add := func(o activeObject, blocker string, machines int) {
		k := key{blocker, o.cause}
		c := byKey[k]
		if c == nil {
			c = &cause{
				short:       explain.WaitState{Blockers: []string{blocker}}.ShortText(m.now),
				sentence:    o.Operation.WaitsFor,
				needsPerson: explain.NeedsPerson([]string{blocker}),
			}
			causes, byKey[k] = append(causes, c), c
		}
		i := slices.IndexFunc(c.pools, func(p *blockedPool) bool { return p.pool == o.pool })
		if i < 0 {
			i = len(c.pools)
			c.pools = append(c.pools, &blockedPool{pool: o.pool, since: o.Operation.Since.Time})
		}
		p := c.pools[i]
		p.machines += machines
		if machines > 0 || len(fromMachines[o.pool]) == 0 { // else it may be the deadline of a machine
			p.deadline = phrase.EarlierTime(p.deadline, cache.TimeOrZero(o.Operation.Deadline))
		}
	}
	for _, o := range m.objects {
		if blockers := o.Operation.BlockedBy; o.key().isMachine() && len(blockers) > 0 {
			add(o, blockers[0], 1)
			if fromMachines[o.pool] == nil {
				fromMachines[o.pool] = map[string]bool{}
			}
			for _, blocker := range blockers { // a set of Cluster API has only the reasons of its blockers
				fromMachines[o.pool][blocker], fromMachines[o.pool][explain.ReasonOfBlocker(blocker)] = true, true
			}
		}
	}
	for _, o := range m.objects {
		if o.key().isMachine() || o.key() != o.pool {
			continue
		}
		own := slices.IndexFunc(o.Operation.BlockedBy, func(blocker string) bool { return !fromMachines[o.pool][blocker] })
		if own >= 0 {
			add(o, o.Operation.BlockedBy[own], 0)
		}
	}
	slices.SortStableFunc(causes, func(a, b *cause) int {
		return list.CompareFalseFirst(!a.needsPerson, !b.needsPerson)
	})
	return causes
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
			c.short,
		); err != nil {
			return err
		}
		if err := printers.WriteTable(out, list.Map(c.pools, m.rowOfBlockedPool)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "    %s\n", c.sentence); err != nil {
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
func (m activeObjects) rowOfBlockedPool(p *blockedPool) []any {
	until := "until a person acts"
	if !p.deadline.IsZero() {
		until = "until " + kubecli.ClockText(p.deadline, m.now)
	}
	return []any{
		"  " + p.name(),
		m.countText(p.pool, p.machines),
		phrase.TextIf(!p.since.IsZero(), "for %s", kubecli.AgeText(p.since, m.now)),
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
