// Package virtual is the client of virtualcloud, the simulated cloud of the devstack, over HTTP. The provider activities call
// it as they would call a real cloud's package, and it is written like one: it knows only the cloud's API, which wire.go
// defines for both sides. It creates no Node objects; the cloud does.
package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"millwright/provider"
)

// Name is the name of this provider in a MachineClass.
const Name = "virtual"

// CSIDriver is the driver of this cloud's PersistentVolumes.
const CSIDriver = "csi.virtual.millwright"

// Keys of Class.Secret.
const (
	SecretToken    = "token"    // credentials; required
	SecretUserData = "userData" // passed to the instance unchanged; optional
)

// The numbers of this client.
const (
	// defaultRequestLife is how long after a lookup the following create request may be accepted. It is part of every wait for
	// an earlier creation, so it is short; a request that takes longer is refused and sent again.
	defaultRequestLife = 2 * time.Second

	// defaultLookInterval is the time between two lookups for an earlier creation.
	defaultLookInterval = 250 * time.Millisecond

	// maxIdleConns is the number of connections kept open to the cloud: as many as a worker runs activities at once.
	maxIdleConns = 256
)

// Provider is a client of one virtualcloud. It is safe for concurrent use and has no state that a restart could lose.
type Provider struct {
	address      string // http://host:port
	http         *http.Client
	adopt        bool
	requestLife  time.Duration
	lookInterval time.Duration
	flights      flights
}

var _ provider.Provider = (*Provider)(nil)

// Option changes a Provider at construction.
type Option func(*Provider)

// WithoutAdoption makes CreateInstance create without a lookup. It is for one test, which shows that the safety test of
// creations fails without the lookup.
func WithoutAdoption() Option { return func(p *Provider) { p.adopt = false } }

// WithRequestLife sets how long after its lookup a create request may still take effect; zero or less means 2 s.
func WithRequestLife(life time.Duration) Option {
	return func(p *Provider) {
		if life > 0 {
			p.requestLife = life
		}
	}
}

// WithLookInterval sets the time between two lookups for an earlier creation; zero or less means 250 ms.
func WithLookInterval(interval time.Duration) Option {
	return func(p *Provider) {
		if interval > 0 {
			p.lookInterval = interval
		}
	}
}

// WithHTTPClient replaces the HTTP client, whose own timeout then also applies, besides the deadline of each call.
func WithHTTPClient(client *http.Client) Option { return func(p *Provider) { p.http = client } }

// New returns a client of the virtualcloud at address, "host:port" or "http://host:port".
func New(address string, options ...Option) *Provider {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	transport := &http.Transport{MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: 90 * time.Second}
	p := &Provider{
		address:      strings.TrimSuffix(address, "/"),
		http:         &http.Client{Transport: transport},
		adopt:        true,
		requestLife:  defaultRequestLife,
		lookInterval: defaultLookInterval,
	}
	for _, option := range options {
		option(p)
	}
	return p
}

// InitializeInstance runs the cloud's initialize step. It may be called again; Unimplemented if the instance's class has no
// such step.
func (p *Provider) InitializeInstance(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
	s, err := p.open(class)
	if err != nil {
		return provider.Instance{}, err
	}
	found, err := s.read(ctx, machine)
	if err != nil {
		return provider.Instance{}, describe(err, "initialize instance of machine %s", machine.Name)
	}
	instance, err := single(found.Items, machine)
	if err != nil {
		return provider.Instance{}, err
	}
	var initialized Instance
	if err := s.do(ctx, http.MethodPost, PathInstances+"/"+instance.ID+"/initialize", nil, &initialized); err != nil {
		return provider.Instance{}, describe(err, "initialize instance of machine %s", machine.Name)
	}
	return fromWire(initialized), nil
}

// InstanceStatus looks for the instance by the machine's UID tag, then by its provider ID. An instance whose creation is in
// LastKnownState is not reported absent before the cloud's consistency window has passed.
func (p *Provider) InstanceStatus(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
	s, err := p.open(class)
	if err != nil {
		return provider.Instance{}, err
	}
	found, err := s.readSettled(ctx, machine)
	if err != nil {
		return provider.Instance{}, describe(err, "look for instance of machine %s", machine.Name)
	}
	seen, err := single(found.Items, machine)
	if err != nil {
		return provider.Instance{}, err
	}
	instance := fromWire(seen)
	if instance.State == provider.Uninitialized {
		waits := provider.Errorf(provider.NotInitialized, "instance %s of machine %s waits to be initialized", seen.ID, machine.Name)
		waits.Instance = &instance
		return provider.Instance{}, waits
	}
	return instance, nil
}

// ListInstances returns what the cloud shows, which may be older than the truth by its consistency window.
func (p *Provider) ListInstances(ctx context.Context, class provider.Class, cluster string) ([]provider.Instance, error) {
	if cluster == "" {
		return nil, provider.Errorf(provider.InvalidArgument, "list instances: the cluster has no name")
	}
	s, err := p.open(class)
	if err != nil {
		return nil, err
	}
	listed, err := s.list(ctx, cluster, classTag(class))
	if err != nil {
		return nil, describe(err, "list instances of class %s", class.Name)
	}
	instances := make([]provider.Instance, 0, len(listed.Items))
	for _, item := range listed.Items {
		instances = append(instances, fromWire(item))
	}
	sortByProviderID(instances)
	return instances, nil
}

// VolumeIDs returns the volumes of this cloud's CSI driver.
func (p *Provider) VolumeIDs(ctx context.Context, volumes []provider.Volume) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, transportError(ctx, err)
	}
	ids := make([]string, 0, len(volumes))
	for _, volume := range volumes {
		if volume.CSIDriver == CSIDriver && volume.Handle != "" {
			ids = append(ids, volume.Handle)
		}
	}
	return ids, nil
}

// single returns the one live instance of the machine: NotFound for none, OutOfRange for several.
func single(items []Instance, machine provider.Machine) (Instance, error) {
	switch len(items) {
	case 0:
		return Instance{}, provider.Errorf(provider.NotFound, "machine %s has no instance", machine.Name)
	case 1:
		return items[0], nil
	default:
		ids := make([]string, 0, len(items))
		for _, item := range items {
			ids = append(ids, item.ID)
		}
		return Instance{}, provider.Errorf(provider.OutOfRange, "machine %s has %d instances: %s", machine.Name, len(ids), strings.Join(ids, ", "))
	}
}

// known is the content of LastKnownState.
type known struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"` // by the cloud's clock
}

// parseKnown parses a LastKnownState. One of another provider or version counts as empty.
func parseKnown(text string) known {
	var k known
	if json.Unmarshal([]byte(text), &k) != nil {
		return known{}
	}
	return k
}

func fromWire(w Instance) provider.Instance {
	state := provider.State("") // pending: it exists, and no other state is known
	switch {
	case w.State == StateTerminating:
		state = provider.Terminating
	case w.Initialize && !w.Initialized:
		state = provider.Uninitialized
	case w.State == StateRunning:
		state = provider.Running
	}
	lastKnown, _ := json.Marshal(known{ID: w.ID, Created: w.Created}) //nolint:errchkjson // a string and a time
	return provider.Instance{
		ProviderID:     w.ProviderID,
		NodeName:       w.Name,
		MachineName:    w.Tags.Machine,
		MachineUID:     w.Tags.MachineUID,
		Addresses:      []provider.Address{{Type: "InternalIP", Address: w.Address}, {Type: "Hostname", Address: w.Name}},
		State:          state,
		Created:        w.Created,
		LastKnownState: string(lastKnown),
	}
}

func classTag(class provider.Class) string { return class.Namespace + "/" + class.Name }

// ProviderID returns the provider ID of an instance.
func ProviderID(region, id string) string { return fmt.Sprintf("virtual:///%s/%s", region, id) }

// parseProviderID returns the instance's ID, or an InvalidArgument error for an ID of another cloud.
func parseProviderID(providerID string) (string, error) {
	rest, ours := strings.CutPrefix(providerID, "virtual:///")
	_, id, two := strings.Cut(rest, "/")
	if !ours || !two || !strings.HasPrefix(id, "i-") {
		return "", provider.Errorf(provider.InvalidArgument, "provider ID %q is not of the form virtual:///REGION/i-N", providerID)
	}
	return id, nil
}
