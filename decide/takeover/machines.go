package takeover

import (
	"fmt"
	"strings"

	"millwright/decide/attention"
	"millwright/decide/phrase"
)

// ownershipFindings returns findings about machines that share an instance or a node, and about machines whose node
// belongs to another instance.
func (f Facts) ownershipFindings() (all []Finding) {
	shared := func(what string, of func(Machine) string) {
		byTie := map[string][]string{}
		for _, m := range f.Machines {
			if tie := of(m); tie != "" {
				byTie[tie] = append(byTie[tie], m.Name)
			}
		}
		for _, m := range f.Machines { // in the order of the machines
			tie := of(m)
			names := byTie[tie]
			if len(names) < 2 || names[0] != m.Name {
				continue
			}
			all = append(all, Finding{
				WeightBlocker,
				"machine/" + m.Name,
				fmt.Sprintf("machines %s name the same %s %s", phrase.JoinNames(names, maxNamesPerFinding, ", "), what, tie),
				"find out whose it is; to remove the object of the other machine and nothing else: millwright drain abandon-instance",
			})
		}
	}
	shared("instance", func(m Machine) string { return m.ProviderID })
	shared("node", func(m Machine) string { return m.NodeName })
	for _, m := range f.Machines {
		if m.NodeProviderID != "" {
			all = append(all, Finding{
				WeightBlocker,
				"machine/" + m.Name,
				fmt.Sprintf(
					"its node %s belongs to instance %s, and the machine names %s: the node would not be drained before the instance is deleted",
					m.NodeName,
					m.NodeProviderID,
					m.ProviderID,
				),
				"find out which of the two is right, and correct the other one",
			})
		}
	}
	return all
}

// needTexts holds the texts of the finding about all machines with the same need.
type needTexts struct{ message, advice string }

// textsByNeed returns the texts for each need that requires work by Millwright.
func textsByNeed() map[attention.Need]needTexts {
	return map[attention.Need]needTexts{
		attention.NeedInstance: {
			"being created: Millwright adopts the instance that has the name of the machine, or creates one",
			"",
		},
		attention.NeedNodeName: {"with a node whose name is not recorded yet: it is recorded", ""},
		attention.NeedNodeJoin: {"waiting for a node to join: Millwright waits on, and the creation timeout runs on", ""},
		attention.NeedRecovery: {"unhealthy: Millwright waits on, and the health timeout runs on", ""},
		attention.NeedNodeSync: {
			"with a node that is not as template and class want it: Millwright changes it, as machine-controller-manager would",
			"",
		},
		attention.NeedPreservation:  {"with a preservation that begins or ends: machine and node are changed", ""},
		attention.NeedInPlaceUpdate: {"updated in place: the update goes on", ""},
		attention.NeedDrain:         {"with a node that has to be empty: its drain goes on", ""},
		attention.NeedDeletion: {
			"being deleted: Millwright goes on; a node that is empty is drained within seconds, and then the instance is deleted",
			"",
		},
	}
}

func (f Facts) machineFindings() (all []Finding) {
	type key struct {
		need  attention.Need
		fails bool
	}
	members := map[key][]Machine{}
	rest, kept := 0, 0
	for _, m := range f.Machines {
		switch _, grouped := textsByNeed()[m.Need]; {
		case m.Fails:
			members[key{fails: true}] = append(members[key{fails: true}], m)
		case grouped:
			members[key{need: m.Need}] = append(members[key{need: m.Need}], m)
		default: // the machine needs no work, or only a write of its status
			rest++
			if m.Preserved {
				kept++
			}
		}
	}
	add := func(k key, what needTexts) {
		of := members[k]
		if len(of) == 0 {
			return
		}
		var names, whys []string
		said := map[string]bool{}
		for _, m := range of {
			names = append(names, m.Name)
			if k.need == attention.NeedNodeSync && !said[m.NeedReason] {
				said[m.NeedReason] = true
				whys = append(whys, m.NeedReason)
			}
		}
		says := fmt.Sprintf("%s %s (%s)", phrase.CountText(len(of), "machine"), what.message, joinNames(names))
		all = append(
			all,
			Finding{
				WeightNote,
				"machines",
				strings.Join(append([]string{says}, phrase.NonEmptyTexts(joinNames(whys))...), "; "),
				what.advice,
			},
		)
	}
	add(
		key{fails: true},
		needTexts{"failed: each is replaced when its budget allows that", "to keep one for inspection: millwright preserve"},
	)
	for _, need := range []attention.Need{
		attention.NeedInstance, attention.NeedNodeName, attention.NeedNodeJoin, attention.NeedRecovery, attention.NeedNodeSync, attention.NeedPreservation, attention.NeedInPlaceUpdate,
		attention.NeedDrain, attention.NeedDeletion,
	} {
		add(key{need: need}, textsByNeed()[need])
	}
	says := "machine is as wanted: machine, node and instance stay as they are"
	says += phrase.TextIf(kept > 0, "; %d preserved", kept)
	return append(all, okFindings(rest, "machines", says, strings.Replace(says, "machine is", "machines are", 1))...)
}
