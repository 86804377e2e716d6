package drain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// removalSequence is a group of pods with volumes that are removed one after the other. The next pod is removed when
// the volumes of the previous pod are attached to another node. Source of the lanes: MCM evicts pods with volumes one
// at a time, so that a node with dozens of volumes does not exceed its cloud's rate of attachments and detachments.
type removalSequence struct {
	isBusy bool
	cause  blockCause // the volume for which the lane has waited longest; zero: none
}

// removalSequences assigns each pod to a lane. Without Parallel, all pods with volumes share one lane. With Parallel,
// pods share a lane if they have a StatefulSet, a budget or a volume in common, directly or through other pods.
type removalSequences struct {
	allowsParallel bool
	parentKeys     map[string]string // union-find forest of the sharing keys: each tree is one lane
	sequenceByRoot map[string]*removalSequence
}

func newRemovalSequences(views []*podState, departed []awaitedVolume, parallel bool) *removalSequences {
	l := &removalSequences{
		allowsParallel: parallel,
		parentKeys:     map[string]string{},
		sequenceByRoot: map[string]*removalSequence{},
	}
	for _, v := range views {
		l.joinKeys(v.pod)
	}
	for _, d := range departed {
		l.joinKeys(d.Pod)
	}
	for _, v := range views {
		if v.pod.isLeaving() {
			l.sequenceOfPod(v.pod).isBusy = true
		}
	}
	for _, d := range departed {
		own := l.sharedSequence(d.Pod)
		own.isBusy = true
		if c := d.cause(); own.cause.name == "" ||
			cmp.Or(c.blockerStart.Compare(own.cause.blockerStart), cmp.Compare(c.name, own.cause.name)) < 0 {
			own.cause = c
		}
	}
	return l
}

// sequenceOfPod returns the lane of a pod. A pod gets its own empty lane if the pod has no volumes, or if the pod
// finished and is not being deleted.
func (l *removalSequences) sequenceOfPod(p Pod) *removalSequence {
	if len(p.Volumes) == 0 || p.Finished && !p.isLeaving() {
		return &removalSequence{}
	}
	return l.sharedSequence(p)
}

func (l *removalSequences) sharedSequence(p Pod) *removalSequence {
	root := l.rootKey(l.sharingKeys(p)[0])
	if l.sequenceByRoot[root] == nil {
		l.sequenceByRoot[root] = &removalSequence{}
	}
	return l.sequenceByRoot[root]
}

// sharingKeys returns the keys by which a pod with volumes shares a lane: the pod's volumes, budgets and StatefulSet.
func (l *removalSequences) sharingKeys(p Pod) []string {
	if !l.allowsParallel {
		return []string{""}
	}
	volumes := list.Map(p.Volumes, func(name string) string { return "volume " + name })
	budgets := list.Map(p.Budgets, func(key string) string { return "budget " + key })
	return slices.Concat(
		volumes,
		budgets,
		phrase.NonEmptyTexts(phrase.TextIf(p.StatefulSet != "", "set %s", p.StatefulSet)),
	)
}

// joinKeys puts all sharing keys of a pod into one lane.
func (l *removalSequences) joinKeys(p Pod) {
	if len(p.Volumes) == 0 {
		return
	}
	keys := l.sharingKeys(p)
	for _, key := range keys[1:] {
		if a, b := l.rootKey(keys[0]), l.rootKey(key); a != b {
			l.parentKeys[b] = a
		}
	}
}

// rootKey returns the root of a key's tree. Path compression prevents a chain of thousands of keys if thousands of pods
// share one budget.
func (l *removalSequences) rootKey(key string) string {
	root := key
	for parent, ok := l.parentKeys[root]; ok; parent, ok = l.parentKeys[root] {
		root = parent
	}
	for key != root {
		l.parentKeys[key], key = root, l.parentKeys[key]
	}
	return root
}

// NewDepartedPod returns the record of a pod that is gone, as the pod was last observed. Callers call NewDepartedPod
// for each pod that left, even for a pod without volumes, because Decide drops the pods that no lane waits for.
func NewDepartedPod(p Pod, now time.Time) DepartedPod {
	// the message is dropped, because it has no length limit and describes an eviction that has ended
	p.Tries.Message = ""
	return DepartedPod{Pod: p, At: now}
}

// maxDepartedPodsBytes is the largest size of Decision.Departed in bytes of JSON, because Departed is part of inputs,
// results and heartbeats. Source of maxDepartedPodsBytes: Temporal warns about payloads of 256 KiB. Half of 256 KiB is
// enough for 128 volumes with names of 80 bytes, and a cloud attaches at most 128 volumes to a node.
const maxDepartedPodsBytes = 128 << 10

// limitDepartedPods returns as many departed pods as fit into maxDepartedPodsBytes, starting with the first. Lanes do
// not wait for the volumes of the other departed pods.
func limitDepartedPods(all []DepartedPod) []DepartedPod {
	bytes := 0
	for i, d := range all {
		text, _ := json.Marshal(d) // json.Marshal of plain structs and strings never fails
		if bytes += len(text) + len(","); bytes > maxDepartedPodsBytes {
			return all[:i]
		}
	}
	return all
}

// awaitedVolume is a departed pod, with the volume for which the pod's lane waits.
type awaitedVolume struct {
	DepartedPod
	state   string // Detaching or Attaching: what the lane waits for
	volume  string
	waitEnd time.Time // end of the wait; then the lane continues without an error
}

// waitStart returns when the wait for the volume began.
func (a awaitedVolume) waitStart() time.Time {
	if a.state == StateAttaching {
		return a.Free
	}
	return a.At
}

func (a awaitedVolume) cause() blockCause {
	why := "is still attached to the node"
	if a.state == StateAttaching {
		why = "is not attached to another node yet"
	}
	return blockCause{
		kind:         BlockedByVolume,
		name:         a.volume,
		blockerStart: a.waitStart().Add(slowVolumeAfter),
		causeEnd:     a.waitEnd,
		why:          fmt.Sprintf("volume %s of %s %s", a.volume, a.Pod.key(), why),
	}
}

// awaitedVolumes returns the departed pods that have a volume for which a lane still waits.
func awaitedVolumes(o Facts) []awaitedVolume {
	used := map[string]bool{} // volumes that a pod on the node uses; they stay attached
	for _, p := range o.Pods {
		for _, v := range p.Volumes {
			used[v] = used[v] || !p.Finished
		}
	}
	var result []awaitedVolume
	byTime := func(a, b DepartedPod) int { return cmp.Or(a.At.Compare(b.At), comparePodsByName(a.Pod, b.Pod)) }
	for _, d := range list.SortedCopy(o.DepartedPods, byTime) {
		if a, waits := nextAwaitedVolume(d, o, used); waits {
			result = append(result, a)
		}
	}
	return result
}

// nextAwaitedVolume returns the volume of a departed pod for which the pod's lane waits. First all volumes have to
// be detached from the node, then all have to be attached to other nodes. If the detachment times out, the lane does
// not wait for the attachment.
func nextAwaitedVolume(d DepartedPod, o Facts, used map[string]bool) (awaitedVolume, bool) {
	if TreatmentOfPod(d.Pod).Behavior == BehaviorSkip || d.Pod.Finished && d.Pod.DeletedAt.IsZero() {
		// a pod that finished without being deleted blocks no volume
		return awaitedVolume{}, false
	}
	first := func(is func(VolumeState) bool) string {
		return list.FindFirst(d.Pod.Volumes, func(name string) bool { return !used[name] && is(o.Volumes[name]) })
	}
	if d.Free.IsZero() {
		if name := first(func(v VolumeState) bool { return v.AttachedHere }); name != "" {
			until := d.At.Add(o.Settings.Detach)
			return awaitedVolume{d, StateDetaching, name, until}, until.After(o.Now)
		}
		d.Free = o.Now
	}
	name := first(func(v VolumeState) bool { return !v.AttachedElsewhere })
	until := d.Free.Add(o.Settings.Attach)
	return awaitedVolume{d, StateAttaching, name, until}, name != "" && until.After(o.Now)
}
