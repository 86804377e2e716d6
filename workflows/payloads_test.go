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

// Sizes of the largest expected fleet: the number of machines of one set, and the number of sets of one deployment.
const (
	maxMachines = 10_000
	maxSets     = 1000
)

// maxPayloadBytes is the size in bytes above which Temporal warns. Temporal refuses payloads above eight times this
// size. Source: limit.blobSize.warn and limit.blobSize.error of Temporal's server.
const maxPayloadBytes = 256 << 10

// longName returns a name of 253 bytes, the maximum in Kubernetes. The names differ only in their last five digits.
func longName(i int) string { return fmt.Sprintf("%s-%05d", strings.Repeat("n", 247), i) }

// longText returns a text that is longer than all limits, as the message of a person or a cloud may be.
func longText() string { return strings.Repeat("because ", 10_000) }

func testUID(i int) string { return fmt.Sprintf("0d9ad1a5-2f8e-4b7a-9a0e-%012d", i) }

func longRef() kube.Ref {
	return kube.Ref{Namespace: strings.Repeat("s", 63), Name: longName(0), UID: testUID(0)}
}

// newReadInput returns a ReadInput with the given time and the versions of all resources.
func newReadInput(now time.Time) kube.ReadInput {
	versions := kube.MinVersions{}
	for _, resource := range []cache.Resource{cache.MachinesResource, cache.SetsResource, cache.DeploymentsResource, cache.ClassesResource, cache.RolloutPoliciesResource, cache.NodesResource, cache.SecretsResource} {
		versions[resource] = "18446744073709551615"
	}
	return kube.ReadInput{Ref: longRef(), Versions: versions, At: now}
}

// In the largest fleet, all payloads are smaller than Temporal's warning limit, because lists and texts are truncated.
func TestNoPayloadOfALargeFleetIsLarge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	payloads, endless := map[string]any{}, longText()
	for name, change := range map[string]func(*scale.Facts, *scale.Member){
		"surplus": func(o *scale.Facts, _ *scale.Member) { o.Replicas = 0 },
		"failed": func(_ *scale.Facts, m *scale.Member) {
			m.Phase, m.MCM.Failed, m.MCM.Replaceable, m.MCM.LastOperationFailed = "Failed", true, true, true
		},
		"drifted": func(_ *scale.Facts, m *scale.Member) {
			m.Drift = "configuration, labels, annotations, node template, class kind"
		},
		"foreign": func(_ *scale.Facts, m *scale.Member) { m.MatchesSelector = false },
		"marked": func(_ *scale.Facts, m *scale.Member) {
			m.Marked, m.Healthy, m.ClusterAPI.MarkMessage = true, scale.ConditionFalse, endless
		},
	} {
		o := scale.Facts{
			Now:       now,
			NameParts: []string{longName(0) + "-", ""},
			Settings:  scale.Settings{Replicas: maxMachines},
			Deletion:  scale.Deletion{HasFinalizer: true},
		}
		for i := range maxMachines {
			m := scale.Member{
				Name:            longName(i),
				UID:             testUID(i),
				Version:         "123456789",
				CreatedAt:       now,
				MatchesSelector: true,
				MCM:             scale.MCMMember{Labelled: true},
				Phase:           "Running",
				Joined:          true,
				Priority:        3,
			}
			change(&o, &m)
			o.Members = append(o.Members, m)
		}
		plan := scale.PlanSet(o)
		require.True(t, plan.Decision.HasActions(), name)
		payloads["DecideSet, "+name] = set.Decision{
			Pending: plan.PendingWork,
			Scale:   plan.Decision,
			Seen:    newReadInput(now).Versions,
			Blocked: blockedSet(now).BlockedSummary(now),
		}
	}
	none := scale.Decide(
		scale.Facts{
			Now:       now,
			NameParts: []string{longName(0) + "-", ""},
			Settings:  scale.Settings{Replicas: maxMachines},
			Deletion:  scale.Deletion{HasFinalizer: true},
		},
	)
	require.Len(t, none.Create, scale.MaxCreations)
	payloads["CreateMachines"] = set.MachineCreation{Set: longRef(), Names: none.Create}
	for _, strategy := range []rollout.Strategy{rollout.RollingUpdate, rollout.InPlaceAuto, rollout.OnDelete} {
		o := deploymentWithManySets(strategy, now)
		plan := rollout.PlanDeployment(o)
		require.True(t, plan.Decision.HasActions(), strategy)
		d := deployment.NewDecision(&v1alpha1.MachineDeployment{}, o, plan)
		d.Seen, d.Blocked = newReadInput(now).Versions, blockedSet(now).BlockedSummary(now)
		payloads["DecideDeployment, "+string(strategy)] = d
	}
	payloads["GrantReplacements"] = deployment.GrantResult{Why: replace.Decide(deploymentWithMachinesToReplace(now)).Why}
	emptied := drain.Decide(nodeWithBlockedPods(now))
	require.NotEmpty(t, emptied.Departed)
	evicted := activitiesdrain.EvictionResult{
		Picture:  emptied.Picture,
		Blockers: emptied.Blockers,
		Departed: emptied.Departed,
	}
	payloads["EvictPods"] = evicted
	payloads["input of Drain"] = workflowsdrain.Input{
		Ref:      longRef(),
		Versions: newReadInput(now).Versions,
		NodeName: longName(0),
		Seen:     &evicted,
	}
	payloads["input of EvictPods"] = activitiesdrain.Eviction{
		Machine:  longRef(),
		Shown:    emptied.Blockers,
		Known:    emptied.Picture.Rows,
		Departed: emptied.Departed,
	}
	payloads["heartbeat of EvictPods"] = activitiesdrain.Progress{Departed: emptied.Departed, Picture: emptied.Picture}
	swept := orphan.Decide(classWithOneRemainingMachine(now))
	require.NotEmpty(t, swept.Collect)
	payloads["FindOrphans"] = cloud.OrphanDecision{Decision: swept}
	payloads["input of FindOrphans"] = cloud.OrphanSearch{Class: longRef(), At: now, Sightings: swept.Sightings}
	secrets := class.Decision{Seen: newReadInput(now).Versions}
	for i := range scale.MaxBatchSize { // DecideClass returns at most MaxBatchSize Secrets
		s := class.SecretTarget{
			Name:       longName(i),
			UID:        testUID(i),
			Version:    "123456789",
			Finalizers: []string{longName(i), "machine.sapcloud.io/machine-controller"},
		}
		secrets.Guard, secrets.Unguard = append(secrets.Guard, s), append(secrets.Unguard, s)
	}
	payloads["DecideClass"] = secrets
	payloads["signal changed"] = run.ChangeSignal{
		UID:      testUID(0),
		Versions: newReadInput(now).Versions,
		Tell:     longName(0),
		Ended:    longName(0),
	}
	for name, payload := range payloads {
		encoded, err := converter.GetDefaultDataConverter().ToPayloads(payload)
		require.NoError(t, err, name)
		size := proto.Size(encoded)
		assert.LessOrEqual(t, size, maxPayloadBytes, name)
		t.Logf("%6d bytes: %s", size, name)
	}
}

// blockedSet returns a set whose machines wait for 10,000 different blockers.
func blockedSet(now time.Time) explain.MachineSet {
	s, cause := explain.MachineSet{Namespace: "shop", Name: longName(0), MachineCount: maxMachines}, longText()[:1000]
	for i := range maxMachines {
		s.Machines = append(s.Machines, explain.Machine{
			Namespace: "shop",
			Name:      longName(i),
			Deleting:  true,
			Step:      "drain",
			Cause:     cause + longName(i),
			BlockedBy: []string{"pdb/shop/" + longName(i)},
			Since:     now,
			Deadline:  now.Add(time.Hour),
			Means:     drain.MeansEvict,
			NextMeans: drain.MeansDelete,
			Now:       now,
		})
	}
	return s
}

// deploymentWithManySets returns a deployment with a problem in each of its sets and machines.
func deploymentWithManySets(strategy rollout.Strategy, now time.Time) rollout.Facts {
	o := rollout.Facts{
		Now: now,
		Settings: rollout.Settings{
			Replicas:       maxMachines,
			Strategy:       strategy,
			HistoryLimit:   new(3),
			MaxSurge:       rollout.IntOrPercent{Value: 10, IsPercent: true},
			MaxUnavailable: rollout.IntOrPercent{Value: 10, IsPercent: true},
			RollbackPolicy: rollout.AutoRollback{HasMaxFailed: true, MaxFailed: maxMachines},
		},
		Deletion:         scale.Deletion{HasFinalizer: true},
		MCM:              rollout.MCMDeployment{ProtectsNodesFromAutoscaler: true},
		OperatorRequests: rollout.OperatorRequests{PausedBy: longText()},
	}
	failure := rollout.Problem{Reason: "FailedCreate", Message: longText()}
	for n := range maxSets {
		s := rollout.MachineSet{
			Name:             longName(n),
			UID:              testUID(n),
			Version:          "123456789",
			CreatedAt:        now.Add(time.Duration(n) * time.Second),
			Deletion:         scale.Deletion{HasFinalizer: true},
			Drifted:          true,
			Replicas:         maxMachines / maxSets,
			ObservedReplicas: maxMachines / maxSets,
			Revision:         int64(n + 1),
			Current:          n == maxSets-1,
			ScaleUpDisabled:  n%2 == 0,
			Failure:          failure,
		}
		for i := range maxMachines / maxSets {
			id := n*maxMachines/maxSets + i
			s.Machines = append(s.Machines, rollout.Member{
				Name:    longName(id),
				UID:     testUID(id),
				Version: "123456789",
				MCM: rollout.MCMMember{
					NodeName:            longName(id),
					LastOperationFailed: true,
					MarkedAt:            "2026-01-01T00:00:00Z",
				},
				Failed:   s.Current,
				Priority: 1,
			})
		}
		o.Sets = append(o.Sets, s)
	}
	return o
}

// deploymentWithMachinesToReplace returns a deployment in which all machines must be replaced, and almost as many
// replacements are permitted as the limit allows.
func deploymentWithMachinesToReplace(now time.Time) replace.Facts {
	o := replace.Facts{
		Now:        now,
		Budget:     rollout.IntOrPercent{Value: 100, IsPercent: true},
		NodeCounts: replace.NodeCounts{Joined: 3 * maxMachines},
	}
	for i := range maxMachines {
		m := replace.Machine{
			Name:   longName(i),
			UID:    testUID(i),
			Domain: longName(i % 64),
			Joined: true,
			Due:    true,
			Reason: "HealthTimeout",
		}
		o.Machines = append(o.Machines, m)
		if i < replace.MaxGrants-replace.MaxBatchSize {
			o.Grants = append(
				o.Grants,
				replace.ReplacementGrant{
					MachineUID:  m.UID,
					MachineName: m.Name,
					Domain:      m.Domain,
					Reason:      m.Reason,
					GrantedAt:   now,
				},
			)
		}
	}
	return o
}

// nodeWithBlockedPods returns a node with 500 blocked pods. Another 500 pods with volumes and budgets have just left
// the node. Source of the number: kubelets allow 110 pods by default, and clouds up to 256.
func nodeWithBlockedPods(now time.Time) drain.Facts {
	const pods = 500
	message := longText()[:2000]
	o := drain.Facts{
		Now: now, Means: drain.MeansEvict, Volumes: map[string]drain.VolumeState{},
		Settings: drain.Settings{Attach: time.Minute, Detach: time.Minute, Parallel: true},
	}
	for i := range pods {
		p := drain.Pod{
			UID:         testUID(i),
			Namespace:   strings.Repeat("s", 63),
			Name:        longName(i),
			Ready:       true,
			Volumes:     []string{longName(i)},
			Budgets:     []string{"s/" + longName(i)},
			StatefulSet: "s/" + longName(i),
			Tries:       drain.RequestRecord{Result: drain.ResultFailed, Message: message},
		}
		o.Volumes[p.Volumes[0]] = drain.VolumeState{AttachedHere: true}
		o.DepartedPods = append(o.DepartedPods, drain.NewDepartedPod(p, now.Add(-time.Duration(i)*time.Millisecond)))
		p.UID, p.Name, p.Volumes = testUID(pods+i), longName(pods+i), nil
		o.Pods, o.Budgets = append(o.Pods, p), append(o.Budgets, drain.DisruptionBudget{Key: p.Budgets[0]})
	}
	return o
}

// classWithOneRemainingMachine returns a class with one remaining machine.
func classWithOneRemainingMachine(now time.Time) orphan.Facts {
	f := orphan.Facts{Now: now, AllowedDeletionsText: "25 until " + now.Add(time.Hour).Format(time.RFC3339)}
	for i := range maxMachines {
		instance := orphan.Instance{
			ProviderID:  "i-" + longName(i),
			MachineName: longName(i),
			MachineUID:  testUID(i),
			Created:     now.Add(-24 * time.Hour),
		}
		f.Instances = append(f.Instances, instance)
		f.Sightings = append(
			f.Sightings,
			orphan.Sighting{ProviderID: instance.ProviderID, UID: instance.MachineUID, Since: now.Add(-24 * time.Hour)},
		)
	}
	f.Machines = []orphan.Machine{{Name: longName(0), UID: testUID(0), ProviderID: "i-" + longName(0)}}
	return f
}
