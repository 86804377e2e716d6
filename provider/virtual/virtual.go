// Package virtual is the provider for virtualcloud, the simulated cloud of the devstack. It is written like the
// provider for a real cloud: it knows only the cloud's HTTP API, which wire.go defines for both sides. It does not
// create Node objects; the cloud does.
package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"millwright/provider"
	"millwright/provider/driver"
)

// Name is the name of this provider in a MachineClass.
const Name = "virtual"

// CSIDriver is the driver of this cloud's PersistentVolumes.
const CSIDriver = "csi.virtual.millwright"

// Keys of Class.Secret.
const (
	SecretToken    = "token"    // credentials; required
	SecretUserData = "userData" // user data, passed to the instance unchanged; optional
)

// maxIdleConns is the number of idle connections to the cloud that stay open. Source: a worker runs so many activities
// at once.
const maxIdleConns = 256

// Driver is a client of one virtualcloud. It is safe for concurrent use and has no state that a restart could lose.
type Driver struct {
	address string // http://host:port
	http    *http.Client
}

// New returns the provider of the virtualcloud at address, "host:port" or "http://host:port".
func New(address string, options ...driver.Option) *driver.Provider {
	return over(&http.Transport{MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: 90 * time.Second}, address, options...)
}

func over(network http.RoundTripper, address string, options ...driver.Option) *driver.Provider {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return driver.New(
		&Driver{address: strings.TrimSuffix(address, "/"), http: &http.Client{Transport: network}},
		options...)
}

// Traits implements driver.Driver. It reads the traits with each call, because the cloud may change them.
func (d *Driver) Traits(ctx context.Context, class provider.Class) (provider.Traits, error) {
	s, err := d.open(class)
	if err != nil {
		return provider.Traits{}, err
	}
	var limits Limits
	if err := s.do(ctx, http.MethodGet, PathLimits, nil, &limits); err != nil {
		return provider.Traits{}, err
	}
	traits := provider.Traits{Window: time.Duration(limits.ConsistencyWindow), Expires: true}
	if limits.ClientTokens {
		traits.Idempotency = provider.ByToken
	}
	return traits, nil
}

// Find implements driver.Driver. It sends one request with the UID and the name, and, if no instance has the UID, one
// with the provider ID: a Machine that was restored from a backup has a new UID, and its instance the former one.
func (d *Driver) Find(ctx context.Context, class provider.Class, machine provider.Machine) (driver.Found, error) {
	s, err := d.open(class)
	if err != nil {
		return driver.Found{}, err
	}
	if machine.UID != "" {
		query := url.Values{"cluster": {machine.Cluster}, "uid": {machine.UID}}
		if machine.ProviderID == "" {
			query["machine"], query["class"] = []string{machine.Name}, []string{classTag(class)}
		}
		found, err := s.read(ctx, PathLookup, query)
		if err != nil || len(found.Instances) > 0 || machine.ProviderID == "" {
			return found, err
		}
	}
	id, err := parseProviderID(machine.ProviderID)
	if err != nil {
		return driver.Found{}, err
	}
	return s.read(ctx, PathLookup, url.Values{"cluster": {machine.Cluster}, "id": {id}})
}

// Create implements driver.Driver.
func (d *Driver) Create(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	request driver.Request,
) (provider.Instance, error) {
	s, err := d.open(class)
	if err != nil {
		return provider.Instance{}, err
	}
	spec, err := ParseSpec(class.Spec)
	if err != nil {
		return provider.Instance{}, err
	}
	var made Instance
	err = s.do(ctx, http.MethodPost, PathInstances, CreateRequest{
		Name:        machine.Name,
		Tags:        Tags{Cluster: machine.Cluster, Class: classTag(class), Machine: machine.Name, MachineUID: machine.UID},
		Spec:        spec,
		UserData:    class.Secret[SecretUserData],
		ClientToken: request.Token,
		NotAfter:    request.NotAfter,
	}, &made)
	return fromWire(made), err
}

// Initialize implements driver.Initializer. It may be called again; Unimplemented if the instance's class has no such
// step.
func (d *Driver) Initialize(
	ctx context.Context,
	class provider.Class,
	_ provider.Machine,
	instance provider.Instance,
) (provider.Instance, error) {
	s, err := d.open(class)
	if err != nil {
		return provider.Instance{}, err
	}
	id, err := parseProviderID(instance.ProviderID)
	if err != nil {
		return provider.Instance{}, err
	}
	var initialized Instance
	err = s.do(ctx, http.MethodPost, PathInstances+"/"+id+"/initialize", nil, &initialized)
	return fromWire(initialized), err
}

// Delete implements driver.Driver. The cloud refuses it if the instance belongs to another cluster.
func (d *Driver) Delete(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	instance provider.Instance,
) error {
	s, err := d.open(class)
	if err != nil {
		return err
	}
	id, err := parseProviderID(instance.ProviderID)
	if err != nil {
		return err
	}
	query := url.Values{"cluster": {machine.Cluster}}
	return s.do(ctx, http.MethodDelete, PathInstances+"/"+url.PathEscape(id)+"?"+query.Encode(), nil, nil)
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context, class provider.Class, cluster string) ([]provider.Instance, error) {
	s, err := d.open(class)
	if err != nil {
		return nil, err
	}
	found, err := s.read(ctx, PathInstances, url.Values{"cluster": {cluster}, "class": {classTag(class)}})
	return found.Instances, err
}

// VolumeIDs implements driver.VolumeNamer: the handles of the volumes of this cloud's CSI driver.
func (d *Driver) VolumeIDs(_ context.Context, volumes []provider.Volume) ([]string, error) {
	ids := []string{}
	for _, v := range volumes {
		if v.CSIDriver == CSIDriver && v.Handle != "" {
			ids = append(ids, v.Handle)
		}
	}
	return ids, nil
}

// CreatedAt implements driver.Historian.
func (d *Driver) CreatedAt(lastKnownState string) time.Time {
	return parseKnown(lastKnownState).Created
}

// known is the content of LastKnownState.
type known struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"` // by the cloud's clock
}

// parseKnown parses a LastKnownState. It returns the zero value for a text of another provider or another version.
func parseKnown(text string) known {
	var k known
	if json.Unmarshal([]byte(text), &k) != nil {
		return known{}
	}
	return k
}

func fromWire(w Instance) provider.Instance {
	state := provider.State("") // for a pending instance
	switch {
	case w.State == StateTerminating:
		state = provider.Terminating
	case w.State == StateTerminated:
		state = provider.Terminated
	case w.Initialize && !w.Initialized:
		state = provider.Uninitialized
	case w.State == StateRunning:
		state = provider.Running
	}
	addresses := []provider.Address{{Type: "InternalIP", Address: w.Address}}
	if w.NodeName != "" {
		addresses = append(addresses, provider.Address{Type: "Hostname", Address: w.NodeName})
	}
	lastKnown, _ := json.Marshal(known{ID: w.ID, Created: w.Created}) // a string and a time cannot fail
	return provider.Instance{
		ProviderID:     w.ProviderID,
		NodeName:       w.NodeName,
		MachineName:    w.Tags.Machine,
		MachineUID:     w.Tags.MachineUID,
		Addresses:      addresses,
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
		return "", provider.Errorf(
			provider.InvalidArgument,
			"provider ID %q is not of the form virtual:///REGION/i-N",
			providerID,
		)
	}
	return id, nil
}
