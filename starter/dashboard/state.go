package dashboard

import "slices"

// state is the state of a pool or a cluster, as pages and the filter name it.
type state string

// The states, those that need a person first.
const (
	stateUnreachable state = "unreachable" // of a cluster: the workers do not reach it
	stateStill       state = "still"
	stateApproval    state = "approval"
	stateRolledBack  state = "rolled-back"
	statePaused      state = "paused"
	stateFailed      state = "failed"
	stateReplacing   state = "replacing"
	stateRolling     state = "rolling"
	stateMoving      state = "moving"
	stateDeleting    state = "deleting"
	stateHealthy     state = "healthy"
)

// stateGroup is a group of states. The filter of a page accepts a group as well as a state.
type stateGroup string

const (
	groupStill   stateGroup = "attention"
	groupMotion  stateGroup = "motion"
	groupHealthy stateGroup = "healthy"
)

// stateInfo says how pages show a state.
type stateInfo struct {
	state state
	word  string
	group stateGroup
}

// stateInfos has all states in their order.
func stateInfos() []stateInfo {
	return []stateInfo{
		{stateUnreachable, "not reachable", groupStill},
		{stateStill, "stands still", groupStill},
		{stateApproval, "waits for approval", groupStill},
		{stateRolledBack, "rolled back", groupStill},
		{statePaused, "paused", groupStill},
		{stateFailed, "has failed machines", groupStill},
		{stateReplacing, "replaces failed machines", groupMotion},
		{stateRolling, "rolling out", groupMotion},
		{stateMoving, "in motion", groupMotion},
		{stateDeleting, "being deleted", groupMotion},
		{stateHealthy, "healthy", groupHealthy},
	}
}

func (s state) rank() int {
	return slices.IndexFunc(stateInfos(), func(i stateInfo) bool { return i.state == s })
}

func (s state) info() stateInfo {
	if i := s.rank(); i >= 0 {
		return stateInfos()[i]
	}
	return stateInfo{state: s, word: string(s)}
}

// Word returns the words for the state.
func (s state) Word() string { return s.info().word }

// Group returns the group of the state.
func (s state) Group() stateGroup { return s.info().group }

// matches reports whether the state is the one that a filter names, or is in the group that it names. An empty filter
// accepts all states.
func (s state) matches(filter string) bool {
	return filter == "" || filter == string(s) || filter == string(s.Group())
}
