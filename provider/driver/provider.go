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
	// expiringLife is the time after a search in which the cloud may accept a create request that can expire. Every
	// wait for an earlier creation includes it, so it is short. A request that takes longer is refused and sent again.
	expiringLife = 2 * time.Second

	// unboundLife is the same for a cloud whose requests do not expire: the time after the begin of a search in which a
	// request of an earlier process may still reach the cloud. It is an assumption, because nothing bounds such a
	// request. It is longer than the 10 s after which an attempt without a heartbeat counts as dead, and shorter than
	// the back-off of 30 s after ResourceExhausted.
	unboundLife = 15 * time.Second

	// defaultSearchInterval is the time between two searches for an earlier creation.
	defaultSearchInterval = 250 * time.Millisecond

	// maxSends is how many times one CreateInstance sends its request if the cloud refuses it as too late. The refusal
	// proves that nothing was created, so it is safe to send the request again. On a slower network the call fails.
	maxSends = 3
)

// Provider is a provider.Provider that uses a Driver. It is safe for concurrent use, and has no state that a restart
// could lose.
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

// WithoutSearch makes CreateInstance create without a search. It is for one test, which proves that the test of exactly
// one instance fails without the search.
func WithoutSearch() Option { return func(p *Provider) { p.search = false } }

// WithRequestLife sets how long a create request may still take effect, counted from the search before it. Zero or less
// means 2 s for a cloud whose requests expire, and 15 s for any other cloud.
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
// terminated. Concurrent calls for one UID in this process share one request.
//
// The cloud's Traits decide how it makes exactly one instance: docs/provider.md, docs/adr/0005-create-exactly-once.md.
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
			// This request created nothing, so machine.NeverTried is still true if it was true before.
		case provider.CodeOf(err) == provider.AlreadyExists:
			return p.holder(ctx, class, machine, err)
		default:
			return instance, err
		}
	}
}

// send sends one create request. If the cloud is idempotent by token, the answer may be an earlier instance that no
// search has shown yet, in any state.
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

// holder searches for the cloud's window after the cloud refused to create a second instance with the machine's name.
// It returns the instance if an earlier request has made it for this machine; otherwise it returns the refusal.
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
	seen, err := p.settled(ctx, class, machine) // reads may not show the new instance yet
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

// InstanceStatus searches for the machine's instance. If the machine has an instance on record that the search
// does not show, it searches again until the cloud's window has passed.
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
// instance with the provider ID that carries the UID of another machine; see provider.Foreign. If the machine has no
// provider ID, it first waits until no earlier create call can make an instance any more. It never deletes an instance
// because of its name alone: if instances carry no UID and one with the machine's name appears, it returns Aborted, and
// the caller decides whose the instance is.
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

// toDelete returns the machine's known instance and all other instances with its UID, which a creation that ran twice
// may have left. If the provider ID is known, it does not wait for instances that reads do not show yet, because the
// caller repeats the call until there is no instance.
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
	if !slices.ContainsFunc(seen.Instances, known) { // no read shows it, but resources that were made for it may remain
		seen.Instances = append(
			seen.Instances,
			provider.Instance{ProviderID: machine.ProviderID, LastKnownState: machine.LastKnownState},
		)
	}
	return seen.Instances, nil
}

// ListInstances returns the instances that the cloud shows. They may be older than the truth by the cloud's window.
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
