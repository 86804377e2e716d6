package serve

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/process"
	"millwright/process/commandline"
	"millwright/provider"
	"millwright/workflows/run"
)

// defaultMaxConcurrentCalls is the default of --max-cloud-calls. Source: a cloud call mostly waits.
const defaultMaxConcurrentCalls = 200

// CloudFlags are the flags of a process that calls clouds. The zero value is invalid, because Register sets the
// defaults.
type CloudFlags struct {
	MaxExhaustedBackoff time.Duration // longest back-off after ResourceExhausted
	MaxConcurrentCalls  int           // maximum number of concurrent calls to each provider
	// maximum number of calls per second for all workers of a provider together; zero means no limit
	MaxCallsPerSecond           float64
	AllowsSecretsWithoutConsent bool // classes may use other namespaces' Secrets without consent
}

// Register adds the flags to a set.
func (f *CloudFlags) Register(set *pflag.FlagSet) {
	set.DurationVar(
		&f.MaxExhaustedBackoff,
		"resource-exhausted-retry",
		kube.DefaultMaxExhaustedBackOff,
		"longest wait before the next create call after a provider reported ResourceExhausted",
	)
	set.IntVar(
		&f.MaxConcurrentCalls,
		"max-cloud-calls",
		defaultMaxConcurrentCalls,
		"largest number of concurrent calls to each provider by this worker; when one MachineSet has a quarter of this number in progress, calls for other sets go first; set the same value on all workers",
	)
	set.BoolVar(
		&f.AllowsSecretsWithoutConsent,
		"allow-secrets-without-consent",
		false,
		"let a MachineClass use any Secret of another namespace that this worker can read, even if the Secret's annotation "+
			v1alpha1.AnnotationAllowedClassNamespaces+" does not name the namespace of the class",
	)
	set.Float64Var(
		&f.MaxCallsPerSecond,
		"max-cloud-calls-per-second",
		0,
		"largest number of calls to each provider that are begun in a second, by all workers that serve it together; 0: no limit; set the same value on all of them",
	)
}

// Check returns an error that names an invalid flag; nil if all flags are valid.
func (f *CloudFlags) Check() error {
	if f.MaxConcurrentCalls < 1 {
		return fmt.Errorf("--max-cloud-calls is %d: at least one call has to be made", f.MaxConcurrentCalls)
	}
	if f.MaxCallsPerSecond < 0 {
		return fmt.Errorf("--max-cloud-calls-per-second is %v: it cannot be negative", f.MaxCallsPerSecond)
	}
	return nil
}

// fairShareDivisor limits the fair share of one set, and of one namespace that has its own target. If one set has a
// fourth of the possible cloud calls in progress, calls for other sets have priority. The other three fourths are free
// for three more sets.
const fairShareDivisor = 4

// FairCallCount returns the fair share of one set, or of one namespace, as a number of concurrent calls to a provider.
func (f *CloudFlags) FairCallCount() int { return max(f.MaxConcurrentCalls/fairShareDivisor, 1) }

// cloudCallPollerCount is the number of open polls of a worker for the calls of one provider. Source: if a decision of
// a set deletes several machines, the calls for all these machines start at the same time. The calls for created
// machines start one after the other.
const cloudCallPollerCount = scale.MaxBatchSize

// CloudWorkerOptions returns the options of an SDK worker that makes cloud calls.
func (f *CloudFlags) CloudWorkerOptions() worker.Options {
	options := WorkerOptions()
	options.MaxConcurrentActivityExecutionSize, options.TaskQueueActivitiesPerSecond = f.MaxConcurrentCalls, f.MaxCallsPerSecond
	options.ActivityTaskPollerBehavior = pollerBehavior(cloudCallPollerCount)
	return options
}

// PrepareActivities prepares the activities of a provider: the name of the installation, the flags, and the metrics of
// the provider's calls. If each namespace has its own target, its tenant may be hostile to the others, so no namespace
// gets more than FairCallCount. Call PrepareActivities once for calls, before StartCloudWorker.
func (f *CloudFlags) PrepareActivities(
	calls *cloud.Activities,
	installation run.Installation,
	name string,
	metrics CloudMetrics,
	hasTargets bool,
) {
	if hasTargets {
		calls.NamespaceCalls = f.FairCallCount()
	}
	calls.Cloud, calls.Cluster = metrics.MeasureProvider(name, calls.Cloud), string(installation)
	calls.ExhaustedRetry, calls.UnaskedSecrets = f.MaxExhaustedBackoff, f.AllowsSecretsWithoutConsent
}

// StartCloudWorker starts the worker of a shard's queue for a provider. Several workers may have the same calls.
func StartCloudWorker(
	temporal client.Client,
	shard run.Shard,
	name string,
	flags CloudFlags,
	fatal FatalErrorStore,
	calls *cloud.Activities,
) (worker.Worker, error) {
	return StartWorker(
		temporal,
		shard.TaskQueue(provider.TaskQueue(name)),
		flags.CloudWorkerOptions(),
		fatal,
		func(w worker.Registry) { w.RegisterActivity(calls) },
	)
}

// Provider is a process that polls only the task queue of one provider. Provider has no caches. The only objects that
// Provider lists in a cluster are Machines.
type Provider struct {
	Name               string // value of provider in a MachineClass, in upper or lower case letters
	Cloud              provider.Provider
	ReadsNodeTemplates bool // the provider reads the annotations of a Machine's spec.nodeTemplate; see cloud.Activities
}

// Main is the main function of the process. Main parses the flags and polls until SIGINT or SIGTERM. If there is an
// error, Main prints the error. The exit code is 2 for a usage error and 1 for any other error.
func (p Provider) Main() { commandline.Main(p.Command()) }

// providerFlags are the flags of a provider's process.
type providerFlags struct {
	process.Flags
	CloudFlags
}

// Command returns the command of the process, which polls until its context is done. The command also has the flags of
// pflag.CommandLine, so a provider can add its own flags to pflag.CommandLine.
func (p Provider) Command() *cobra.Command {
	var flags providerFlags
	c := &cobra.Command{
		Use:     provider.TaskQueue(strings.ToLower(p.Name)),
		Short:   "Serve the task queue of the provider " + p.Name,
		Version: commandline.Version(),
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return p.run(c.Context(), flags) },
	}
	flags.Flags.Register(c.Flags())
	flags.CloudFlags.Register(c.Flags())
	return c
}

// run polls until ctx is done. At the start, run waits for Temporal and the API server.
func (p Provider) run(ctx context.Context, flags providerFlags) error {
	name := strings.ToLower(p.Name)
	if err := provider.ValidateName(name); err != nil {
		return err
	}
	installation, err := flags.Installation()
	if err != nil {
		return err
	}
	if err := flags.Check(); err != nil {
		return err
	}
	shards, err := flags.Shards.ServedShards()
	if err != nil {
		return err
	}
	started, err := flags.Start(ctx)
	if err != nil {
		return err
	}
	calls := &cloud.Activities{Cloud: p.Cloud, NodeTemplates: p.ReadsNodeTemplates}
	if err := CreateProviderClients(flags.Flags, "millwright-provider-"+name, calls); err != nil {
		return err
	}
	temporal, err := flags.ConnectTemporal(ctx, started.Logger, started.MetricsRegistry)
	if err != nil {
		return err
	}
	defer temporal.Close()
	if err := process.ClaimInstallation(ctx, installation, temporal, calls.Secrets, started.Logger); err != nil {
		return err
	}
	flags.PrepareActivities(
		calls,
		installation,
		name,
		NewCloudMetrics(started.MetricsRegistry),
		flags.HasTargetPerNamespace(),
	)
	fatal := NewFatalErrorStore()
	var workers []worker.Worker
	for _, number := range shards {
		w, err := StartCloudWorker(temporal, installation.Shard(number), name, flags.CloudFlags, fatal, calls)
		if err != nil {
			StopWorkers(workers)
			return err
		}
		workers = append(workers, w)
	}
	started.MarkReady(temporal)
	started.Logger.Info("serving", "installation", installation, "shards", shards, "queues", provider.TaskQueue(name))
	return WaitAndStopWorkers(ctx, workers, fatal)
}

// CreateProviderClients creates clients of the control cluster and the target cluster for the activities of a provider.
// No other code of the process uses these clients. Therefore, status writes of other machines do not delay a cloud call
// when they use up --kube-api-qps. CreateProviderClients sends no request.
func CreateProviderClients(flags process.Flags, agent string, calls *cloud.Activities) error {
	control, err := flags.ControlClusterConfig(agent)
	if err != nil {
		return err
	}
	if calls.Classes, err = versioned.NewForConfig(control); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if calls.Secrets, err = process.NewKubernetesClient(control); err != nil {
		return err
	}
	targets, err := flags.NewTargetClientFactory(calls.Secrets, agent)
	if err != nil {
		return err
	}
	if targets != nil {
		calls.TargetClient = targets.Client
		return nil
	}
	target, err := flags.TargetClusterConfig(agent)
	if err != nil || target == nil {
		return err
	}
	client, err := process.NewKubernetesClient(target)
	calls.TargetClient = cloud.SingleTargetClientFunc(client)
	return err
}
