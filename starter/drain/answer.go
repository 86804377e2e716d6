package drain

import (
	"time"

	"millwright/decide/request"
	"millwright/observe/cache"
	observe "millwright/observe/drain"
	"millwright/observe/machine"
)

// explanation is the explanation of a deletion or drain in JSON and YAML. Unknown and empty fields are omitted.
type explanation struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Node      string    `json:"node,omitempty"`
	Stage     string    `json:"stage"`
	Since     time.Time `json:"since,omitzero"`    // start of the stage
	Means     string    `json:"means,omitempty"`   // how the drain removes pods
	Deadline  time.Time `json:"deadline,omitzero"` // when Means ends
	BlockedBy []string  `json:"blockedBy,omitempty"`

	Sentence string   `json:"sentence"`           // what blocks it, and what happens next without a person
	WaitsFor string   `json:"waitsFor,omitempty"` // the sentence of the status
	Commands []string `json:"commands,omitempty"` // commands that change it
	Note     string   `json:"note,omitempty"`     // why a fact is not known

	Requests   map[string]string `json:"requests,omitempty"` // requests of people, by command: actor and reason
	Result     string            `json:"result,omitempty"`   // how the drain ended
	LeftBehind []string          `json:"leftBehind,omitempty"`
	Volumes    []string          `json:"volumes,omitempty"` // volumes that the deletion waits for

	Counts *podCounts  `json:"counts,omitempty"` // numbers of all pods; absent: not known
	Pods   []podAnswer `json:"pods,omitempty"`   // at most 20 pods, those that need a person first
	SeenAt time.Time   `json:"seenAt,omitzero"`  // when a worker saw the pods
}

// podCounts are numbers of pods.
type podCounts struct {
	Gone        int `json:"gone"`
	Terminating int `json:"terminating"`
	Blocked     int `json:"blocked"`
	Waiting     int `json:"waiting"`
	Skipped     int `json:"stay"`
}

// podAnswer is a pod that a drain waits for.
type podAnswer struct {
	Pod       string    `json:"pod"` // namespace/name
	State     string    `json:"state"`
	Since     time.Time `json:"since,omitzero"`
	Attempts  int       `json:"attempts"`
	BlockedBy string    `json:"blockedBy,omitempty"`
	Budgets   []string  `json:"budgets,omitempty"` // disruption budgets that block the pod
	Next      time.Time `json:"next,omitzero"`     // next attempt, or end of the wait
}

// answer returns the fields that JSON and YAML print.
func (s snapshot) answer() explanation {
	m, said := s.machine, s.statement()
	a := explanation{
		Namespace: m.Namespace, Name: m.Name, Node: cache.NodeNameOfMachine(m),
		Stage: stageText(m), Since: deletionStageStart(m),
		Means:     string(observe.CurrentRemovalMeans(m)),
		Deadline:  observe.DeadlineFacts(m, s.now).NextDeadline(),
		BlockedBy: blockers(m),
		Sentence:  said.text, Commands: said.commands, Note: s.unknownFactNote, Volumes: s.volumes, SeenAt: s.lastHeartbeatAt,
	}
	if o := m.Status.CurrentOperation; o != nil {
		a.WaitsFor = o.WaitsFor
	}
	for _, h := range requestCommandsHelp() {
		value, set := m.Annotations[machine.RequestAnnotationKey(request.KindMachine, h.Name)]
		if set && h.Name != request.Resume {
			if a.Requests == nil {
				a.Requests = map[string]string{}
			}
			a.Requests[string(h.Name)] = value
		}
	}
	if d := m.Status.Deletion; d != nil && d.Drain != nil {
		a.Result, a.LeftBehind = d.Drain.Result, d.Drain.LeftBehind
	}
	if s.podOverview == nil {
		return a
	}
	c := s.podOverview.Counts
	a.Counts = &podCounts{c.Gone, c.Terminating, c.Blocked, c.Waiting, c.Skipped}
	for _, r := range s.podOverview.Rows {
		a.Pods = append(a.Pods, podAnswer{r.Pod, r.State, r.Since, r.Attempts, r.BlockedBy, r.Budgets, r.Next})
	}
	return a
}
