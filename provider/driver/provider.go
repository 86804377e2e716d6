package driver

import (
	"context"
	"slices"
	"strings"
	"time"

	"millwright/provider"
)

// Durations and limits of package driver.
const (
	// expiringRequestLifetime is the lifetime of a create request that expires: the cloud accepts the request only within
	// this time after the search. The lifetime is short, because each wait for an earlier creation includes the
	// lifetime of its request. The cloud refuses a request that arrives later, and the Provider sends the request
	// again.
	expiringRequestLifetime = 2 * time.Second

	// unboundedRequestLifetime is the assumed lifetime of a create request that does not expire: an earlier process's
	// request may reach the cloud within this time after the start of a search. In fact, a request that does not expire
	// may arrive at any time. The assumed lifetime is longer than the heartbeat timeout of 10 s, and shorter than the
	// back-off of 30 s after ResourceExhausted.
	unboundedRequestLifetime = 15 * time.Second

	// defaultSearchInterval is the time between two searches for an earlier creation.
	defaultSearchInterval = 250 * time.Millisecond

	// maxCreateRequests is the maximum number of create requests that one CreateInstance sends while the cloud refuses
	// the requests as too late. The rejection proves that no instance was created, so it is safe to send the request
	// again. CreateInstance fails if the network is so slow that the cloud refuses all requests.
	maxCreateRequests = 3
)

// Provider is a provider.Provider that uses a Driver. A Provider is safe for concurrent use, and has no state that must
// survive a restart.
type Provider struct {
	driver                    Driver
	searchesBeforeCreate      bool
	configuredRequestLifetime time.Duration
	searchInterval            time.Duration
	observer                  Observer // nil: no observer
	creations                 sharedCreations
}

var _ provider.Provider = (*Provider)(nil)

// Option configures a new Provider.
type Option func(*Provider)

// WithoutSearch makes CreateInstance send a create request without a search. Only one test uses WithoutSearch: it
// proves that, without the search, a killed process can leave two instances.
func WithoutSearch() Option { return func(p *Provider) { p.searchesBeforeCreate = false } }

// WithRequestLifetime sets the lifetime of a create request: how long after the preceding search the request may still
// take effect. If life is not positive, the lifetime is 2 s for a cloud whose requests expire, and 15 s for other
// clouds.
func WithRequestLifetime(life time.Duration) Option {
	return func(p *Provider) { p.configuredRequestLifetime = life }
}

// WithSearchInterval sets the time between two searches for an earlier creation. If interval is not positive, the
// interval is 250 ms.
func WithSearchInterval(interval time.Duration) Option {
	return func(p *Provider) {
		if interval > 0 {
			p.searchInterval = interval
		}
	}
}

// New returns a Provider that uses a driver.
func New(driver Driver, options ...Option) *Provider {
	p := &Provider{driver: driver, searchesBeforeCreate: true, searchInterval: defaultSearchInterval}
	for _, option := range options {
		option(p)
	}
	return p
}

// Traits implements provider.Provider.
func (p *Provider) Traits(ctx context.Context, class provider.Class) (provider.Traits, error) {
	traits, err := p.readTraits(ctx, class)
	return traits, toProviderError(ctx, class, err, "read what the cloud promises")
}

// readTraits returns the driver's Traits and the driver's unchanged error.
func (p *Provider) readTraits(ctx context.Context, class provider.Class) (provider.Traits, error) {
	return callWithObserver(p, "Traits", func() (provider.Traits, error) { return p.driver.Traits(ctx, class) })
}

// CreateInstance adopts the machine's existing instance, or creates an instance. CreateInstance returns Aborted while
// the existing instance is being terminated. Concurrent calls for one UID in this process share one create request.
//
// How CreateInstance makes sure that exactly one instance is created depends on the cloud's Traits: see
// docs/provider.md and docs/adr/0005-create-exactly-once.md.
func (p *Provider) CreateInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	if machine.UID == "" || machine.Name == "" || machine.Cluster == "" {
		return provider.Instance{}, provider.Errorf(
			provider.InvalidArgument,
			"create instance: the machine needs a name, a UID and a cluster",
		)
	}
	if !p.searchesBeforeCreate {
		return p.sendCreateRequest(ctx, class, machine, CreateRequest{Token: requestToken(machine)})
	}
	return p.creations.createOnce(ctx, machine.UID, func(first bool) (provider.Instance, error) {
		machine.NeverTried = machine.NeverTried && first
		return p.adoptOrCreateInstance(ctx, class, machine)
	})
}

func requestToken(machine provider.Machine) string { return machine.Cluster + "/" + machine.UID }

func (p *Provider) adoptOrCreateInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	for sends := 1; ; sends++ {
		seen, err := p.searchUntilConclusive(ctx, class, machine, true)
		if err != nil {
			return provider.Instance{}, err
		}
		if len(seen.Instances) > 0 {
			return singleLiveInstance(seen.Instances, machine)
		}
		request := CreateRequest{Token: requestToken(machine)}
		if !seen.Now.IsZero() {
			request.NotAfter = seen.Now.Add(p.requestLifetime(seen))
		}
		instance, err := p.sendCreateRequest(ctx, class, machine, request)
		switch {
		case isExpiredError(err) && sends < maxCreateRequests:
			// The rejected request created no instance, so machine.NeverTried does not change.
		case provider.CodeOfError(err) == provider.AlreadyExists:
			return p.findInstanceWithName(ctx, class, machine, err)
		default:
			return instance, err
		}
	}
}

// sendCreateRequest sends one create request. If the cloud is idempotent by token, the answer may be the instance of an
// earlier request. The instance may be in any state, and earlier searches may not have shown it.
func (p *Provider) sendCreateRequest(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	request CreateRequest,
) (provider.Instance, error) {
	made, err := callWithObserver(
		p,
		"Create",
		func() (provider.Instance, error) { return p.driver.Create(ctx, class, machine, request) },
	)
	if err != nil {
		err = toProviderError(ctx, class, err, "create instance of machine %s", machine.Name)
		return provider.Instance{LastKnownState: made.LastKnownState}, err
	}
	return singleLiveInstance([]provider.Instance{made}, machine)
}

// findInstanceWithName searches for the instance that has the machine's name, after the cloud refused a create request
// with AlreadyExists. The search may last as long as the cloud's window. If an earlier request for this machine created
// the instance, findInstanceWithName returns the instance; otherwise, it returns the rejection.
func (p *Provider) findInstanceWithName(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	refusal error,
) (provider.Instance, error) {
	traits, err := p.Traits(ctx, class)
	if err != nil {
		return provider.Instance{}, err
	}
	seen, err := p.searchUntilDeadline(
		ctx,
		class,
		machine,
		time.Now().Add(traits.Window),
		matchUID|matchProviderID|matchName|refuseForeignInstances,
	)
	switch {
	case err != nil:
		return provider.Instance{}, err
	case len(seen.Instances) == 0:
		return provider.Instance{}, refusal
	}
	return singleLiveInstance(seen.Instances, machine)
}

// singleLiveInstance returns the only instance of the list. singleLiveInstance returns Aborted if the instance is being
// terminated.
func singleLiveInstance(instances []provider.Instance, machine provider.Machine) (provider.Instance, error) {
	instance, err := singleInstance(instances, machine)
	switch {
	case err != nil:
		return provider.Instance{}, err
	case instance.State == provider.Terminating || instance.State == provider.Terminated:
		return provider.Instance{}, provider.Errorf(
			provider.Aborted,
			"instance %s of machine %s is still being terminated",
			instance.ProviderID,
			machine.Name,
		)
	}
	return instance, nil
}

// singleInstance returns the only instance of the list, NotFound for an empty list, and OutOfRange for several
// instances.
func singleInstance(instances []provider.Instance, machine provider.Machine) (provider.Instance, error) {
	switch len(instances) {
	case 0:
		return provider.Instance{}, provider.Errorf(provider.NotFound, "machine %s has no instance", machine.Name)
	case 1:
		return instances[0], nil
	}
	ids := make([]string, 0, len(instances))
	for _, i := range instances {
		ids = append(ids, i.ProviderID)
	}
	return provider.Instance{}, provider.Errorf(
		provider.OutOfRange,
		"machine %s has %d instances: %s",
		machine.Name,
		len(ids),
		strings.Join(ids, ", "),
	)
}

// InitializeInstance runs the cloud's initialize step. InitializeInstance returns Unimplemented if the driver is not an
// Initializer.
func (p *Provider) InitializeInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	if err := ctx.Err(); err != nil {
		return provider.Instance{}, toProviderError(ctx, class, err, "initialize instance of machine %s", machine.Name)
	}
	initializer, can := p.driver.(Initializer)
	if !can {
		return provider.Instance{}, provider.Errorf(provider.Unimplemented, "instances of this cloud have no initialize step")
	}
	seen, err := p.searchPastStaleReads(ctx, class, machine) // stale reads may hide a new instance
	if err != nil {
		return provider.Instance{}, toProviderError(ctx, class, err, "initialize instance of machine %s", machine.Name)
	}
	instance, err := singleInstance(seen.Instances, machine)
	if err != nil {
		return provider.Instance{}, err
	}
	initialized, err := callWithObserver(p, "Initialize", func() (provider.Instance, error) {
		return initializer.Initialize(ctx, class, machine, instance)
	})
	return initialized, toProviderError(ctx, class, err, "initialize instance of machine %s", machine.Name)
}

// InstanceStatus searches for the machine's instance. If the machine has a recorded instance and the first search does
// not find it, InstanceStatus repeats the search until the cloud's window ends.
func (p *Provider) InstanceStatus(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	seen, err := p.searchPastStaleReads(ctx, class, machine)
	if err != nil {
		return provider.Instance{}, toProviderError(ctx, class, err, "look for instance of machine %s", machine.Name)
	}
	instance, err := singleInstance(seen.Instances, machine)
	if err != nil {
		return provider.Instance{}, err
	}
	if instance.State == provider.Uninitialized {
		waits := provider.Errorf(
			provider.NotInitialized,
			"instance %s of machine %s waits to be initialized",
			instance.ProviderID,
			machine.Name,
		)
		waits.Instance = &instance
		return provider.Instance{}, waits
	}
	return instance, nil
}

// DeleteInstance deletes the instance with the machine's provider ID and every instance with the machine's UID. If the
// instance with the provider ID has the UID of another machine, DeleteInstance returns the error of
// provider.ForeignInstanceError. If the machine has no provider ID, DeleteInstance first waits until no earlier create
// call can still make an instance. DeleteInstance never deletes an instance only because of its name. If instances have
// no UID and an instance with the machine's name appears, DeleteInstance returns Aborted, and the caller decides which
// machine owns the instance.
func (p *Provider) DeleteInstance(ctx context.Context, class provider.Class, machine provider.Machine) error {
	if machine.UID == "" && machine.ProviderID == "" {
		return provider.Errorf(provider.InvalidArgument, "delete instance: the machine has neither a UID nor a provider ID")
	}
	instances, err := p.findInstancesToDelete(ctx, class, machine)
	if err != nil {
		return err
	}
	for _, i := range instances {
		_, err := callWithObserver(
			p,
			"Delete",
			func() (struct{}, error) { return struct{}{}, p.driver.Delete(ctx, class, machine, i) },
		)
		if err != nil && provider.CodeOfError(err) != provider.NotFound {
			return toProviderError(ctx, class, err, "delete instance %s of machine %s", i.ProviderID, machine.Name)
		}
	}
	return nil
}

// findInstancesToDelete returns the instance with the machine's provider ID and all other instances with the machine's
// UID. If a creation ran twice, several instances may have the machine's UID. If the provider ID is known,
// findInstancesToDelete does not wait for instances that stale reads hide, because the caller repeats the call until no
// instance exists.
func (p *Provider) findInstancesToDelete(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) ([]provider.Instance, error) {
	if machine.ProviderID == "" {
		seen, err := p.searchUntilConclusive(ctx, class, machine, false)
		return seen.Instances, err
	}
	seen, err := p.findInstances(ctx, class, machine, matchUID|matchProviderID|refuseForeignInstances)
	if err != nil {
		return nil, toProviderError(ctx, class, err, "look for instance of machine %s", machine.Name)
	}
	known := func(i provider.Instance) bool { return i.ProviderID == machine.ProviderID }
	if !slices.ContainsFunc(seen.Instances, known) { // no read shows the instance, but its resources may remain
		seen.Instances = append(
			seen.Instances,
			provider.Instance{ProviderID: machine.ProviderID, LastKnownState: machine.LastKnownState},
		)
	}
	return seen.Instances, nil
}

// ListInstances returns the instances that the cloud lists. The list may be stale by up to the cloud's window.
func (p *Provider) ListInstances(
	ctx context.Context,
	class provider.Class,
	cluster string,
) ([]provider.Instance, error) {
	if cluster == "" {
		return nil, provider.Errorf(provider.InvalidArgument, "list instances: the cluster has no name")
	}
	listed, err := callWithObserver(
		p,
		"List",
		func() ([]provider.Instance, error) { return p.driver.List(ctx, class, cluster) },
	)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, toProviderError(ctx, class, err, "list instances of class %s", class.Name)
	}
	listed = slices.DeleteFunc(slices.Clone(listed), isTerminated)
	slices.SortFunc(listed, func(a, b provider.Instance) int { return strings.Compare(a.ProviderID, b.ProviderID) })
	return listed, nil
}

// VolumeIDs implements provider.Provider.
func (p *Provider) VolumeIDs(ctx context.Context, volumes []provider.Volume) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, toProviderError(ctx, provider.Class{}, err, "name volumes")
	}
	namer, can := p.driver.(VolumeIDReader)
	if !can {
		return []string{}, nil
	}
	ids, err := namer.VolumeIDs(ctx, volumes)
	return ids, toProviderError(ctx, provider.Class{}, err, "name volumes")
}
