package dashboard

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"golang.org/x/sync/singleflight"

	"millwright/api/v1alpha1"
	"millwright/starter/drain"
	"millwright/starter/explain"
	"millwright/starter/history"
	"millwright/starter/kubecli"
	"millwright/starter/rollout"
)

// detailAge is how long what was read for one page is used for the next: many open pages of one object cost one read.
const detailAge = 3 * time.Second

// maxDetailAge is how long what was read for a pool is used while none of its objects changes: the times in it become
// old. A read lists all machines of a namespace.
const maxDetailAge = 15 * time.Second

// detailTimeout is how long a page waits for the API server and for Temporal. Without an answer the page shows what the
// caches have.
const detailTimeout = 5 * time.Second

// maxDetails is how many objects' details are kept.
const maxDetails = 200

// details reads what the caches do not have: the rollout of a pool, and the runs and the drain of a machine.
type details struct {
	clients         kubecli.Clients
	temporal        client.Client // nil: Temporal cannot be reached
	temporalNote    string        // why temporal is nil
	temporalAddress string
	temporalSpace   string // Temporal namespace
	ui              kubecli.UIPages
	actsAsMCM       bool
	now             func() time.Time

	group singleflight.Group
	mutex sync.Mutex
	kept  map[string]keptDetail
}

// keptDetail is a detail with the time at which it was read.
type keptDetail struct {
	value   any
	version uint64 // version of the objects; 0: not known
	at      time.Time
}

// isFresh reports whether the detail can be used for objects of a version.
func (k keptDetail) isFresh(version uint64) bool {
	age := time.Since(k.at)
	return age < detailAge || version != 0 && k.version == version && age < maxDetailAge
}

// read returns the kept detail with this key if it is fresh, or else reads it. The version is that of the objects; 0 if
// more than these objects is read.
func read[T any](ctx context.Context, d *details, key string, version uint64, do func(context.Context) T) T {
	d.mutex.Lock()
	kept, found := d.kept[key]
	d.mutex.Unlock()
	if value, is := kept.value.(T); found && is && kept.isFresh(version) {
		return value
	}
	value, _, _ := d.group.Do(key, func() (any, error) {
		// the read serves other pages, too, so it does not end with this page
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), detailTimeout)
		defer cancel()
		value := do(ctx)
		d.mutex.Lock()
		defer d.mutex.Unlock()
		if len(d.kept) >= maxDetails {
			clear(d.kept)
		}
		d.kept[key] = keptDetail{value, version, time.Now()}
		return value, nil
	})
	return value.(T)
}

// rolloutDetail is the report about a rollout, or why there is none.
type rolloutDetail struct {
	report *rollout.Report
	note   string
}

// readRollout reads the rollout of a deployment. Other pools have none.
func (d *details) readRollout(ctx context.Context, p *pool) rolloutDetail {
	group := ""
	switch p.id.Kind {
	case kindDeployment:
		group = v1alpha1.GroupName
	case kindClusterAPIDeployment:
		_, group, _ = strings.Cut(kindClusterAPIDeployment, ".")
	default:
		return rolloutDetail{}
	}
	return read(ctx, d, p.id.String(), p.version(), func(ctx context.Context) rolloutDetail {
		report, err := rollout.ReadReport(ctx, d.clients, group, p.id.namespacedName(), d.actsAsMCM, d.now)
		if err != nil {
			return rolloutDetail{note: "The rollout cannot be read: " + kubecli.CollapseSpaces(err.Error())}
		}
		return rolloutDetail{report: &report}
	})
}

// readMachine reads the runs of a machine, and its drain if there is one; m is nil if the machine is gone.
func (d *details) readMachine(ctx context.Context, id objectID, m *machineRow) machineDetails {
	return read(ctx, d, id.String(), 0, func(ctx context.Context) (found machineDetails) {
		found.runsNote = d.temporalNote
		if d.temporal != nil {
			d.readRuns(ctx, id, m, &found)
		}
		if m == nil || !m.isDrained {
			return found
		}
		report, err := drain.ReadReport(ctx, d.clients, d.temporal, d.temporalAddress, id.namespacedName(), d.now)
		if err == nil { // an error means that the drain has not begun, or is over
			found.drain = &report
		}
		return found
	})
}

// readRuns reads the runs of a machine's workflows, and the pending activities of the open one.
func (d *details) readRuns(ctx context.Context, id objectID, m *machineRow, found *machineDetails) {
	var err error
	found.runs, found.hasOlder, err = history.ReadRuns(
		ctx, d.temporal, d.temporalSpace, id.namespacedName(), d.clients.FindInstallation(ctx), maxRuns, d.ui,
	)
	if err != nil {
		found.runsNote = fmt.Sprintf(
			"Temporal at %s does not answer: %s", d.temporalAddress, kubecli.CollapseSpaces(err.Error()),
		)
		return
	}
	workflow := ""
	if m != nil && m.currentOperation != nil {
		workflow = m.currentOperation.WorkflowID
	}
	for _, r := range found.runs {
		if workflow == "" && r.End.IsZero() {
			workflow = r.WorkflowID
		}
	}
	if workflow != "" {
		if found.calls, err = explain.PendingActivityLines(ctx, d.temporal, workflow, d.now()); err != nil {
			found.runsNote = "Its workflow cannot be read from Temporal: " + kubecli.CollapseSpaces(err.Error())
		}
	}
}
