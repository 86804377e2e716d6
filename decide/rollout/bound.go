package rollout

import (
	"slices"
	"strings"
)

// MaxBatch is how many sets, machines and nodes a decision names at the most, those of all lists together. Source: as in decide/scale.
const MaxBatch = 50

// Bytes of a decision. Source: it has 16 KiB in history, and its sentence stands there twice; the rest is for what people see.
const (
	maxLists    = 9 << 10 // what its lists may take
	maxSentence = 1 << 10 // what tells the step
	maxReason   = 200     // what others wrote, such as why somebody holds a rollout
	framing     = 80      // what an entry takes besides its texts: more than the names of its fields, which are sent as JSON
)

// space is what is left of a decision's lists.
type space struct{ entries, bytes int }

// take reports whether so many entries with these texts fit in, and takes the space. The first one fits whatever its size: a
// decision that does nothing would be made again for ever.
func (s *space) take(entries, bytes int) bool {
	bytes += entries * framing
	if s.entries < entries || (s.bytes < bytes && s.entries < MaxBatch) {
		return false
	}
	s.entries, s.bytes = s.entries-entries, s.bytes-bytes
	return true
}

// fit returns as many entries, from the first on, as there is space for.
func fit[T any](s *space, list []T, weigh func(T) int) []T {
	for i, entry := range list {
		if !s.take(1, weigh(entry)) {
			s.entries = 0 // what comes later in a decision does not overtake
			return list[:i]
		}
	}
	return list
}

func weighName(name string) int { return len(name) }

func weighTarget(t Target) int {
	return len(t.Name) + len(t.UID) + len(t.Version) + len(t.Node) + len(t.Why)
}

func weighMark(m Mark) int { return weighTarget(m.Target) + len(m.At) }

func weighMove(m Move) int { return weighTarget(m.Machine) + len(m.From) + len(m.To) + len(m.ToUID) }

// weighResize counts the digits of its numbers, too.
func weighResize(r Resize) int {
	return len(r.Name) + len(r.UID) + len(r.Version) + len(r.Why) + len(phrase("%d%d%d%d", r.From, r.To, r.Desired, r.Max)) + framing/2
}

// bound keeps the lists of a decision within one batch, in the order in which they are carried out. Who reads the facts again finds
// the rest.
func (d *Decision) bound() {
	s := &space{MaxBatch, maxLists}
	if d.Trigger != nil {
		d.Trigger.Drop = fit(s, d.Trigger.Drop, weighName)
	}
	d.Mark = fit(s, d.Mark, weighMark)
	for _, list := range []*[]Target{&d.Unmark, &d.Open, &d.Close, &d.Sync} {
		*list = fit(s, *list, weighTarget)
	}
	if d.Record != nil {
		d.Record.Failed = fit(s, d.Record.Failed, weighName)
	}
	d.Resize = fit(s, d.Resize, weighResize)
	d.Move = fit(s, d.Move, weighMove)
	d.boundNodes(s)
	d.Delete = fit(s, d.Delete, weighTarget)
}

// boundNodes keeps together what is done at one machine, so that its node is written once.
func (d *Decision) boundNodes(s *space) {
	lists := []*[]Target{&d.Accept, &d.Settle, &d.Strip, &d.Candidates, &d.Select, &d.Taint, &d.Untaint, &d.Guard, &d.Unguard}
	entries, bytes := map[string]int{}, map[string]int{}
	var order []string
	for _, list := range lists {
		for _, t := range *list {
			if entries[t.UID]++; entries[t.UID] == 1 {
				order = append(order, t.UID)
			}
			bytes[t.UID] += weighTarget(t)
		}
	}
	kept := map[string]bool{}
	for _, uid := range order {
		kept[uid] = s.take(entries[uid], bytes[uid])
	}
	for _, list := range lists {
		*list = slices.DeleteFunc(*list, func(t Target) bool { return !kept[t.UID] })
	}
}

// cut shortens what somebody else wrote.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
