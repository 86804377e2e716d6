package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/observe/taskqueue"
	"millwright/process/claims"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// checkQueues checks that workers poll the task queues of each shard and of its providers. The parameter isWorkerDown
// is true if no worker of the installation renews its Lease.
func (x *doctorCommand) checkQueues(
	ctx context.Context,
	temporal client.Client,
	shards kubecli.Shards,
	classes []v1alpha1.MachineClass,
	isWorkerDown bool,
) (findings []finding) {
	if err := shards.Installation.Check(); err != nil {
		return []finding{{check: "queues", problem: "the installation is not known", remedy: "give --cluster-name"}}
	}
	for _, of := range shards.List() {
		for _, name := range []string{run.QueueMachines, run.QueueKubernetes, run.QueueDrains} {
			f := x.checkQueue(ctx, temporal, of.TaskQueue(name), "start a worker; see its log")
			if f.isNote = isWorkerDown && f.problem == ""; f.isNote { // Temporal still lists a worker that was killed
				f.check += ", and none has a heartbeat now"
			}
			if f.problem != "" {
				f.problem += unservedNamespacesText(shards.Table.NamespacesOfShard(of.Number))
			}
			findings = append(findings, f)
		}
		findings = append(findings, x.checkProviderQueues(ctx, temporal, of, shards, classes)...)
	}
	return findings
}

// maxListedNamespaces is the maximum number of namespaces that a finding names.
const maxListedNamespaces = 10

// unservedNamespacesText names the namespaces that a missing process would serve.
func unservedNamespacesText(namespaces []string) string {
	if len(namespaces) == 0 {
		return ""
	}
	return fmt.Sprintf(
		", so that nobody serves the %s %s",
		phrase.SingularOrPlural(len(namespaces), "namespace", "namespaces"),
		phrase.JoinNames(namespaces, maxListedNamespaces, ", "),
	)
}

// checkProviderQueues checks that workers poll the task queues of the providers of a shard's classes.
func (x *doctorCommand) checkProviderQueues(
	ctx context.Context,
	temporal client.Client,
	of run.Shard,
	shards kubecli.Shards,
	classes []v1alpha1.MachineClass,
) (findings []finding) {
	var providers []string
	for i := range classes {
		if shards.ShardOfNamespace(classes[i].Namespace) == of {
			providers = append(providers, classes[i].ProviderName())
		}
	}
	slices.Sort(providers)
	var served []string
	var unserved []finding
	for _, name := range slices.Compact(providers) {
		f := x.checkQueue(ctx, temporal, of.ProviderTaskQueue(name), "start a worker with --queues=provider-"+name)
		if f.problem != "" {
			unserved = append(unserved, f)
			continue
		}
		served, findings = append(served, name), append(findings, f)
	}
	for _, f := range unserved { // a class may contain a misspelt provider name
		f.remedy += phrase.TextIf(len(served) > 0, ", or correct the class (served: %s)", strings.Join(served, ", "))
		findings = append(findings, f)
	}
	return findings
}

// checkShards checks that a live bridge serves each shard, and that each namespace with a class has a shard. An
// installation with one shard needs no check.
func (x *doctorCommand) checkShards(
	ctx context.Context,
	clients kubecli.Clients,
	shards kubecli.Shards,
	classes []v1alpha1.MachineClass,
) (findings []finding) {
	if shards.Namespace == "" {
		return nil
	}
	holders, err := claims.ReadHolders(ctx, clients.Leases.Leases(shards.Namespace), claims.RoleBridge, x.Now())
	switch {
	case apierrors.IsForbidden(err):
		what := "the bridges of the shards are not checked: you may not list Leases in namespace " + shards.Namespace
		return []finding{{check: what, isNote: true}}
	case err != nil:
		return []finding{{check: "shards", problem: kubecli.CollapseSpaces(err.Error())}}
	}
	for _, of := range shards.List() {
		f := finding{check: fmt.Sprintf("bridge of shard %d", of.Number), remedy: "start a bridge; see its log"}
		if holder := holders[of.Number]; holder != "" {
			f.check += ": " + holder
		} else {
			f.problem = "no bridge serves the shard" + unservedNamespacesText(shards.Table.NamespacesOfShard(of.Number))
		}
		findings = append(findings, f)
	}
	var without []string
	for i := range classes {
		if number, recorded := shards.Table.ShardOfNamespace(classes[i].Namespace); !recorded || number >= shards.Count {
			without = append(without, classes[i].Namespace)
		}
	}
	slices.Sort(without)
	if without = slices.Compact(without); len(without) > 0 {
		findings = append(findings, finding{
			check:   "shards of namespaces",
			problem: "these namespaces have no shard: " + phrase.JoinNames(without, maxListedNamespaces, ", "),
			remedy:  "the bridge of shard 0 records a shard within seconds; see its log",
		})
	}
	return findings
}

// checkQueue checks that a worker polls a task queue.
func (x *doctorCommand) checkQueue(ctx context.Context, temporal client.Client, name, do string) finding {
	n, err := kubecli.CountPollers(ctx, temporal, x.temporalFlags.Namespace, name, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	f := finding{check: "queue " + name, remedy: do}
	switch {
	case err != nil:
		f.problem = kubecli.CollapseSpaces(err.Error())
	case n == 0:
		f.problem = "no worker polls it"
	}
	if f.problem == "" {
		f.check += fmt.Sprintf(
			": %s polled it within %s",
			phrase.CountText(n, "worker"),
			phrase.AgeText(taskqueue.PollerTimeout),
		)
	}
	return f
}
