package workflows_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"millwright/activities/class"
	"millwright/activities/cloud"
	"millwright/activities/deployment"
	activitiesdrain "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/decide/explain"
	"millwright/decide/orphan"
	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe/cache"
	workflowsdrain "millwright/workflows/drain"
	"millwright/workflows/run"
)

// Of the largest fleet that is expected: machines of one set, and sets of one deployment.
const (
	fleet     = 10_000
	fleetSets = 1000
)

// largestPayload is from where on Temporal warns, in bytes. It refuses eight times as much. Source: limit.blobSize.warn
// and limit.blobSize.error of its server.
const largestPayload = 256 << 10

// longName is a name of 253 bytes, the most that Kubernetes takes. Its end tells it from others.
func longName(i int) string { return fmt.Sprintf("%s-%05d", strings.Repeat("n", 247), i) }

// longText is what people and clouds may write without end.
func longText() string { return strings.Repeat("because ", 10_000) }

func uid(i int) string { return fmt.Sprintf("0d9ad1a5-2f8e-4b7a-9a0e-%012d", i) }

func ref() kube.Ref {
	return kube.Ref{Namespace: strings.Repeat("s", 63), Name: longName(0), UID: uid(0)}
}

// readAt has the versions of all resources.
func readAt(now time.Time) kube.Read {
	versions := kube.MinVersions{}
	for _, resource := range []cache.Resource{cache.Machines, cache.Sets, cache.Deployments, cache.Classes, cache.Policies, cache.Nodes, cache.Secrets} {
		versions[resource] = "18446744073709551615"
	}
	return kube.Read{Ref: ref(), Versions: versions, At: now}
}

// What the largest fleet puts into a history stays below what Temporal warns of: lists are bounded, and texts are cut.
func TestNoPayloadOfALargeFleetIsLarge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	payloads, endless := map[string]any{}, longText()
	for name, change := range map[string]func(*scale.Observed, *scale.Member){
		"surplus": func(o *scale.Observed, _ *scale.Member) { o.Replicas = 0 },
		"failed": func(_ *scale.Observed, m *scale.Member) {
			m.Phase, m.MCM.Failed, m.MCM.Replace, m.MCM.Troubled = "Failed", true, true, true
		},
		"drifted": func(_ *scale.Observed, m *scale.Member) {
			m.Drift = "configuration, labels, annotations, node template, class kind"
		},
		"foreign": func(_ *scale.Observed, m *scale.Member) { m.Matches = false },
		"marked": func(_ *scale.Observed, m *scale.Member) {
			m.Marked, m.Healthy, m.ClusterAPI.MarkedWhy = true, scale.False, endless
		},
	} {
		o := scale.Observed{
			Now:      now,
			Naming:   []string{longName(0) + "-", ""},
			Settings: scale.Settings{Replicas: fleet},
			Deletion: scale.Deletion{Finalizer: true},
		}
		for i := range fleet {
			m := scale.Member{
				Name:     longName(i),
				UID:      uid(i),
				Version:  "123456789",
				Created:  now,
				Matches:  true,
				MCM:      scale.MCMMember{Labelled: true},
				Phase:    "Running",
				Joined:   true,
				Priority: 3,
			}
			change(&o, &m)
			o.Members = append(o.Members, m)
		}
		plan := scale.Plan(o)
		require.True(t, plan.Decision.Acts(), name)
		payloads["DecideSet, "+name] = set.Decision{
			Pending: plan.Pending,
			Scale:   plan.Decision,
			Seen:    readAt(now).Versions,
			Blocked: waits(now).Blocked(now),
		}
	}
	none := scale.Decide(
		scale.Observed{
			Now:      now,
			Naming:   []string{longName(0) + "-", ""},
			Settings: scale.Settings{Replicas: fleet},
			Deletion: scale.Deletion{Finalizer: true},
		},
	)
	require.Len(t, none.Create, scale.MaxCreate)
	payloads["CreateMachines"] = set.Creation{Set: ref(), Names: none.Create}
	for _, strategy := range []rollout.Strategy{rollout.RollingUpdate, rollout.InPlaceAuto, rollout.OnDelete} {
		o := manySets(strategy, now)
		plan := rollout.Plan(o)
		require.True(t, plan.Decision.Acts(), strategy)
		d := deployment.Planned(&v1alpha1.MachineDeployment{}, o, plan)
		d.Seen, d.Blocked = readAt(now).Versions, waits(now).Blocked(now)
		payloads["DecideDeployment, "+string(strategy)] = d
	}
	payloads["GrantReplacements"] = deployment.Granted{Why: replace.Decide(allDue(now)).Why}
	emptied := drain.Decide(crowdedNode(now))
	require.NotEmpty(t, emptied.Departed)
	evicted := activitiesdrain.Evicted{Picture: emptied.Picture, Blockers: emptied.Blockers, Departed: emptied.Departed}
	payloads["EvictPods"] = evicted
	payloads["input of Drain"] = workflowsdrain.Input{
		Ref:      ref(),
		Versions: readAt(now).Versions,
		NodeName: longName(0),
		Seen:     &evicted,
	}
	payloads["input of EvictPods"] = activitiesdrain.Eviction{
		Machine:  ref(),
		Shown:    emptied.Blockers,
		Known:    emptied.Picture.Rows,
		Departed: emptied.Departed,
	}
	payloads["heartbeat of EvictPods"] = activitiesdrain.Progress{Departed: emptied.Departed, Picture: emptied.Picture}
	swept := orphan.Decide(lostMachines(now))
	require.NotEmpty(t, swept.Collect)
	payloads["FindOrphans"] = cloud.OrphanDecision{Decision: swept}
	payloads["input of FindOrphans"] = cloud.OrphanSearch{Class: ref(), At: now, Sightings: swept.Sightings}
	secrets := class.Decision{Seen: readAt(now).Versions}
	for i := range scale.MaxBatch { // DecideClass names no more
		s := class.SecretTarget{
			Name:       longName(i),
			UID:        uid(i),
			Version:    "123456789",
			Finalizers: []string{longName(i), "machine.sapcloud.io/machine-controller"},
		}
		secrets.Guard, secrets.Unguard = append(secrets.Guard, s), append(secrets.Unguard, s)
	}
	payloads["DecideClass"] = secrets
	payloads["signal changed"] = run.Changed{
		UID:      uid(0),
		Versions: readAt(now).Versions,
		Tell:     longName(0),
		Ended:    longName(0),
	}
	for name, payload := range payloads {
		encoded, err := converter.GetDefaultDataConverter().ToPayloads(payload)
		require.NoError(t, err, name)
		size := proto.Size(encoded)
		assert.LessOrEqual(t, size, largestPayload, name)
		t.Logf("%6d bytes: %s", size, name)
	}
}

// waits is a set whose machines wait for 10,000 different things.
func waits(now time.Time) explain.Set {
	s, cause := explain.Set{Namespace: "shop", Name: longName(0), Of: fleet}, longText()[:1000]
	for i := range fleet {
		s.Machines = append(s.Machines, explain.Machine{
			Namespace: "shop",
			Name:      longName(i),
			Deleting:  true,
			Step:      "drain",
			Cause:     cause + longName(i),
			BlockedBy: []string{"pdb/shop/" + longName(i)},
			Since:     now,
			Deadline:  now.Add(time.Hour),
			Means:     drain.Evict,
			Then:      drain.Delete,
			Now:       now,
		})
	}
	return s
}

// manySets is a deployment in whose sets and machines nothing is as it should be.
func manySets(strategy rollout.Strategy, now time.Time) rollout.Observed {
	o := rollout.Observed{
		Now: now,
		Settings: rollout.Settings{
			Replicas:     fleet,
			Strategy:     strategy,
			HistoryLimit: new(3),
			Surge:        rollout.Bound{Value: 10, Percent: true},
			Unavailable:  rollout.Bound{Value: 10, Percent: true},
			Automatic:    rollout.AutoRollback{Failed: true, MaxFailed: fleet},
		},
		Deletion: scale.Deletion{Finalizer: true},
		MCM:      rollout.MCMDeployment{Guard: true},
		Requests: rollout.Requests{PausedBy: longText()},
	}
	failure := rollout.Problem{Reason: "FailedCreate", Message: longText()}
	for n := range fleetSets {
		s := rollout.Set{
			Name:      longName(n),
			UID:       uid(n),
			Version:   "123456789",
			Created:   now.Add(time.Duration(n) * time.Second),
			Deletion:  scale.Deletion{Finalizer: true},
			Drift:     true,
			Replicas:  fleet / fleetSets,
			ActedOn:   fleet / fleetSets,
			Revision:  int64(n + 1),
			Current:   n == fleetSets-1,
			NoScaleUp: n%2 == 0,
			Failure:   failure,
		}
		for i := range fleet / fleetSets {
			id := n*fleet/fleetSets + i
			s.Machines = append(s.Machines, rollout.Member{
				Name:    longName(id),
				UID:     uid(id),
				Version: "123456789",
				MCM: rollout.MCMMember{
					Node:     longName(id),
					Troubled: true,
					MarkedAt: "2026-01-01T00:00:00Z",
				},
				Failed:   s.Current,
				Priority: 1,
			})
		}
		o.Sets = append(o.Sets, s)
	}
	return o
}

// allDue is a deployment all of whose machines are due for replacement, as many as may be granted already.
func allDue(now time.Time) replace.Observed {
	o := replace.Observed{
		Now:    now,
		Budget: rollout.Bound{Value: 100, Percent: true},
		Nodes:  replace.Nodes{Joined: 3 * fleet},
	}
	for i := range fleet {
		m := replace.Machine{
			Name:   longName(i),
			UID:    uid(i),
			Domain: longName(i % 64),
			Joined: true,
			Due:    true,
			Reason: "HealthTimeout",
		}
		o.Machines = append(o.Machines, m)
		if i < replace.MaxGrants-replace.MaxBatch {
			o.Grants = append(o.Grants, replace.Grant{UID: m.UID, Name: m.Name, Domain: m.Domain, Reason: m.Reason, At: now})
		}
	}
	return o
}

// crowdedNode is a node that 500 pods with volumes and budgets have left at the same time, and as many are blocked on.
// Source of the number: kubelets take 110 pods by default, and clouds allow 256.
func crowdedNode(now time.Time) drain.Observed {
	const pods = 500
	message := longText()[:2000]
	o := drain.Observed{
		Now: now, Means: drain.Evict, Volumes: map[string]drain.Volume{},
		Settings: drain.Settings{Attach: time.Minute, Detach: time.Minute, Parallel: true},
	}
	for i := range pods {
		p := drain.Pod{
			UID:         uid(i),
			Namespace:   strings.Repeat("s", 63),
			Name:        longName(i),
			Ready:       true,
			Volumes:     []string{longName(i)},
			Budgets:     []string{"s/" + longName(i)},
			StatefulSet: "s/" + longName(i),
			Tries:       drain.Tries{Result: drain.Failed, Message: message},
		}
		o.Volumes[p.Volumes[0]] = drain.Volume{Here: true}
		o.Departed = append(o.Departed, drain.Leave(p, now.Add(-time.Duration(i)*time.Millisecond)))
		p.UID, p.Name, p.Volumes = uid(pods+i), longName(pods+i), nil
		o.Pods, o.Budgets = append(o.Pods, p), append(o.Budgets, drain.Budget{Key: p.Budgets[0]})
	}
	return o
}

// lostMachines is a class whose machines are gone but one.
func lostMachines(now time.Time) orphan.Facts {
	f := orphan.Facts{Now: now, Allowed: "25 until " + now.Add(time.Hour).Format(time.RFC3339)}
	for i := range fleet {
		instance := orphan.Instance{
			ProviderID: "i-" + longName(i),
			Machine:    longName(i),
			UID:        uid(i),
			Created:    now.Add(-24 * time.Hour),
		}
		f.Instances = append(f.Instances, instance)
		f.Sightings = append(
			f.Sightings,
			orphan.Sighting{ProviderID: instance.ProviderID, UID: instance.UID, Since: now.Add(-24 * time.Hour)},
		)
	}
	f.Machines = []orphan.Machine{{Name: longName(0), UID: uid(0), ProviderID: "i-" + longName(0)}}
	return f
}
