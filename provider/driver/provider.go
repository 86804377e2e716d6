package driver

import (
	"context"
	"slices"
	"strings"
	"time"

	"millwright/provider"
)

// The numbers of this package.
const (
	// expiringLife is how long after a search a create request that can expire may be accepted. It is part of every wait
	// for an earlier creation, so it is short; a request that takes longer is refused and sent again.
	expiringLife = 2 * time.Second

	// unboundLife is the same for clouds whose requests do not expire: how long after the begin of a search an earlier
	// process's request is waited for. It is an assumption, since nothing bounds such a request: longer than the 10 s
	// after which an attempt without a heartbeat counts as dead, and shorter than the back-off of 30 s after
	// ResourceExhausted.
	unboundLife = 15 * time.Second

	// defaultSearchInterval is the time between two searches for an earlier creation.
	defaultSearchInterval = 250 * time.Millisecond

	// maxSends is how often one CreateInstance sends its request if the cloud refuses it as too late. A refusal proves
	// that nothing was created, so sending again is safe; on a slower network the call fails.
	maxSends = 3
)

// Provider is a provider.Provider over a Driver. It is safe for concurrent use, and keeps nothing that a restart could
// lose.
type Provider struct {
	driver         Driver
	search         bool
	requestLife    time.Duration
	searchInterval time.Duration
	observer       Observer // nil: none
	flights        flights
}

var _ provider.Provider = (*Provider)(nil)

// Option changes a Provider at construction.
type Option func(*Provider)

// WithoutSearch makes CreateInstance create without a search. It is for one test, which shows that the safety test of
// creations fails without the search.
func WithoutSearch() Option { return func(p *Provider) { p.search = false } }

// WithRequestLife sets how long after the search before it a create request may still take effect; zero or less means 2
// s for a cloud whose requests expire, and 15 s for others.
func WithRequestLife(life time.Duration) Option { return func(p *Provider) { p.requestLife = life } }

// WithSearchInterval sets the time between two searches for an earlier creation; zero or less means 250 ms.
func WithSearchInterval(interval time.Duration) Option {
	return func(p *Provider) {
		if interval > 0 {
			p.searchInterval = interval
		}
	}
}

// New returns the provider of a driver.
func New(driver Driver, options ...Option) *Provider {
	p := &Provider{driver: driver, search: true, searchInterval: defaultSearchInterval}
	for _, option := range options {
		option(p)
	}
	return p
}

// Traits implements provider.Provider.
func (p *Provider) Traits(ctx context.Context, class provider.Class) (provider.Traits, error) {
	traits, err := p.promises(ctx, class)
	return traits, describe(ctx, class, err, "read what the cloud promises")
}

// promises is Traits with the driver's own error.
func (p *Provider) promises(ctx context.Context, class provider.Class) (provider.Traits, error) {
	return observed(p, "Traits", func() (provider.Traits, error) { return p.driver.Traits(ctx, class) })
}

// CreateInstance adopts the machine's instance, or creates one. It returns Aborted while the instance is being
// terminated.
//
// How it makes exactly one instance follows from the cloud's Traits: docs/provider.md,
// docs/adr/0005-create-exactly-once.md. Calls for one UID in this process share one request.
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
	if !p.search {
		return p.send(ctx, class, machine, Request{Token: token(machine)})
	}
	return p.flights.do(ctx, machine.UID, func(first bool) (provider.Instance, error) {
		machine.NeverTried = machine.NeverTried && first
		return p.adoptOrCreate(ctx, class, machine)
	})
}

func token(machine provider.Machine) string { return machine.Cluster + "/" + machine.UID }

func (p *Provider) adoptOrCreate(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	for sends := 1; ; sends++ {
		seen, err := p.outwait(ctx, class, machine, true)
		if err != nil {
			return provider.Instance{}, err
		}
		if len(seen.Instances) > 0 {
			return adopt(seen.Instances, machine)
		}
		request := Request{Token: token(machine)}
		if !seen.Now.IsZero() {
			request.NotAfter = seen.Now.Add(p.life(seen))
		}
		instance, err := p.send(ctx, class, machine, request)
		switch {
		case isExpired(err) && sends < maxSends:
			// This request created nothing, and there was nothing before it: NeverTried of the caller still holds.
		case provider.CodeOf(err) == provider.AlreadyExists:
			return p.holder(ctx, class, machine, err)
		default:
			return instance, err
		}
	}
}

// send sends one create request. The answer to a token may be an instance that no search has shown yet, in any state.
func (p *Provider) send(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	request Request,
) (provider.Instance, error) {
	made, err := observed(
		p,
		"Create",
		func() (provider.Instance, error) { return p.driver.Create(ctx, class, machine, request) },
	)
	if err != nil {
		err = describe(ctx, class, err, "create instance of machine %s", machine.Name)
		return provider.Instance{LastKnownState: made.LastKnownState}, err
	}
	return adopt([]provider.Instance{made}, machine)
}

// holder returns the machine's own instance if that holds the name which the cloud refused to give twice: an earlier
// request has made it, and reads did not show it yet. Otherwise it returns the refusal.
func (p *Provider) holder(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	refusal error,
) (provider.Instance, error) {
	traits, err := p.Traits(ctx, class)
	if err != nil {
		return provider.Instance{}, err
	}
	seen, err := p.searchUntil(ctx, class, machine, time.Now().Add(traits.Window), byUID|byID|byName|toAct)
	switch {
	case err != nil:
		return provider.Instance{}, err
	case len(seen.Instances) == 0:
		return provider.Instance{}, refusal
	}
	return adopt(seen.Instances, machine)
}

// adopt returns the only instance, if it is not being terminated.
func adopt(instances []provider.Instance, machine provider.Machine) (provider.Instance, error) {
	instance, err := single(instances, machine)
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

// single returns the one live instance of the machine: NotFound for none, OutOfRange for several.
func single(instances []provider.Instance, machine provider.Machine) (provider.Instance, error) {
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

// InitializeInstance runs the cloud's initialize step; Unimplemented if the cloud has none.
func (p *Provider) InitializeInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	if err := ctx.Err(); err != nil {
		return provider.Instance{}, describe(ctx, class, err, "initialize instance of machine %s", machine.Name)
	}
	initializer, can := p.driver.(Initializer)
	if !can {
		return provider.Instance{}, provider.Errorf(provider.Unimplemented, "instances of this cloud have no initialize step")
	}
	seen, err := p.settled(ctx, class, machine) // it was created a moment ago
	if err != nil {
		return provider.Instance{}, describe(ctx, class, err, "initialize instance of machine %s", machine.Name)
	}
	instance, err := single(seen.Instances, machine)
	if err != nil {
		return provider.Instance{}, err
	}
	initialized, err := observed(p, "Initialize", func() (provider.Instance, error) {
		return initializer.Initialize(ctx, class, machine, instance)
	})
	return initialized, describe(ctx, class, err, "initialize instance of machine %s", machine.Name)
}

// InstanceStatus looks for the machine's instance once. If the machine has an instance on record, a read that does not
// show it counts only after the cloud's window.
func (p *Provider) InstanceStatus(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	seen, err := p.settled(ctx, class, machine)
	if err != nil {
		return provider.Instance{}, describe(ctx, class, err, "look for instance of machine %s", machine.Name)
	}
	instance, err := single(seen.Instances, machine)
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

// DeleteInstance deletes the instance with the provider ID and every instance with the machine's UID. It refuses an
// instance with the provider ID that carries the UID of another machine; see provider.Foreign. Without a
// provider ID it first outwaits a create call that may still be in flight. A name alone deletes nothing: if instances
// carry no UID and one with the machine's name appears, it returns Aborted, and the caller looks whose it is.
func (p *Provider) DeleteInstance(ctx context.Context, class provider.Class, machine provider.Machine) error {
	if machine.UID == "" && machine.ProviderID == "" {
		return provider.Errorf(provider.InvalidArgument, "delete instance: the machine has neither a UID nor a provider ID")
	}
	instances, err := p.toDelete(ctx, class, machine)
	if err != nil {
		return err
	}
	for _, i := range instances {
		_, err := observed(
			p,
			"Delete",
			func() (struct{}, error) { return struct{}{}, p.driver.Delete(ctx, class, machine, i) },
		)
		if err != nil && provider.CodeOf(err) != provider.NotFound {
			return describe(ctx, class, err, "delete instance %s of machine %s", i.ProviderID, machine.Name)
		}
	}
	return nil
}

// toDelete returns the machine's known instance and all others with its UID: a creation that ran twice has left one
// that is not recorded. If one is known it does not wait for others, since the caller repeats the call until there is
// none.
func (p *Provider) toDelete(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) ([]provider.Instance, error) {
	if machine.ProviderID == "" {
		seen, err := p.outwait(ctx, class, machine, false)
		return seen.Instances, err
	}
	seen, err := p.find(ctx, class, machine, byUID|byID|toAct)
	if err != nil {
		return nil, describe(ctx, class, err, "look for instance of machine %s", machine.Name)
	}
	known := func(i provider.Instance) bool { return i.ProviderID == machine.ProviderID }
	if !slices.ContainsFunc(seen.Instances, known) { // also one that no read shows: what was made for it may remain
		seen.Instances = append(
			seen.Instances,
			provider.Instance{ProviderID: machine.ProviderID, LastKnownState: machine.LastKnownState},
		)
	}
	return seen.Instances, nil
}

// ListInstances returns what the cloud shows, which may be older than the truth by its window.
func (p *Provider) ListInstances(
	ctx context.Context,
	class provider.Class,
	cluster string,
) ([]provider.Instance, error) {
	if cluster == "" {
		return nil, provider.Errorf(provider.InvalidArgument, "list instances: the cluster has no name")
	}
	listed, err := observed(p, "List", func() ([]provider.Instance, error) { return p.driver.List(ctx, class, cluster) })
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, describe(ctx, class, err, "list instances of class %s", class.Name)
	}
	listed = slices.DeleteFunc(slices.Clone(listed), isTerminated)
	slices.SortFunc(listed, func(a, b provider.Instance) int { return strings.Compare(a.ProviderID, b.ProviderID) })
	return listed, nil
}

// VolumeIDs implements provider.Provider.
func (p *Provider) VolumeIDs(ctx context.Context, volumes []provider.Volume) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, describe(ctx, provider.Class{}, err, "name volumes")
	}
	namer, can := p.driver.(VolumeNamer)
	if !can {
		return []string{}, nil
	}
	ids, err := namer.VolumeIDs(ctx, volumes)
	return ids, describe(ctx, provider.Class{}, err, "name volumes")
}
