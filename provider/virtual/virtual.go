// Package virtual is the provider for virtualcloud, the simulated cloud of the devstack. Like the provider for a real
// cloud, package virtual uses only the cloud's HTTP API. The file wire.go defines the HTTP API for the provider and for
// the cloud. The cloud creates the Node objects, not package virtual.
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

// Name is the name of the provider virtual in a MachineClass.
const Name = "virtual"

// CSIDriver is the name of the CSI driver of virtualcloud's PersistentVolumes.
const CSIDriver = "csi.virtual.millwright"

// Keys of Class.Secret.
const (
	SecretKeyToken    = "token"    // bearer token for the cloud; required
	SecretKeyUserData = "userData" // user data, which the instance receives unchanged; optional
)

// maxIdleConns is the maximum number of idle connections to the cloud. The number exceeds a worker's default of 200
// concurrent calls (--max-cloud-calls).
const maxIdleConns = 256

// Driver is a client of one virtualcloud. A Driver is safe for concurrent use, and has no state that must survive a
// restart.
type Driver struct {
	address    string // http://host:port
	httpClient *http.Client
}

// New returns a Provider for the virtualcloud at address, which has the form "host:port" or "http://host:port".
func New(address string, options ...driver.Option) *driver.Provider {
	return newWithTransport(
		&http.Transport{MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: 90 * time.Second},
		address,
		options...)
}

// newWithTransport returns a Provider that reaches the virtualcloud through the given http.RoundTripper.
func newWithTransport(network http.RoundTripper, address string, options ...driver.Option) *driver.Provider {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return driver.New(
		&Driver{address: strings.TrimSuffix(address, "/"), httpClient: &http.Client{Transport: network}},
		options...)
}

// Traits implements driver.Driver. Every call reads the Traits from the cloud, because the cloud's settings may change.
func (d *Driver) Traits(ctx context.Context, class provider.Class) (provider.Traits, error) {
	s, err := d.openSession(class)
	if err != nil {
		return provider.Traits{}, err
	}
	var limits Limits
	if err := s.sendRequest(ctx, http.MethodGet, PathLimits, nil, &limits); err != nil {
		return provider.Traits{}, err
	}
	traits := provider.Traits{Window: time.Duration(limits.ConsistencyWindow), Expires: true}
	if limits.HonorsClientTokens {
		traits.Idempotency = provider.ByToken
	}
	return traits, nil
}

// Find implements driver.Driver. Find first searches by the UID, and by the name if the provider ID is unknown. If no
// instance has the UID, Find searches by the provider ID: a Machine that was restored from a backup has a new UID, but
// its instance still has the former UID.
func (d *Driver) Find(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (driver.SearchResult, error) {
	s, err := d.openSession(class)
	if err != nil {
		return driver.SearchResult{}, err
	}
	if machine.UID != "" {
		query := url.Values{"cluster": {machine.Cluster}, "uid": {machine.UID}}
		if machine.ProviderID == "" {
			query["machine"], query["class"] = []string{machine.Name}, []string{classTag(class)}
		}
		found, err := s.readAllPages(ctx, PathLookup, query)
		if err != nil || len(found.Instances) > 0 || machine.ProviderID == "" {
			return found, err
		}
	}
	_, id, err := SplitProviderID(machine.ProviderID)
	if err != nil {
		return driver.SearchResult{}, err
	}
	return s.readAllPages(ctx, PathLookup, url.Values{"cluster": {machine.Cluster}, "id": {id}})
}

// Create implements driver.Driver.
func (d *Driver) Create(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	request driver.CreateRequest,
) (provider.Instance, error) {
	s, err := d.openSession(class)
	if err != nil {
		return provider.Instance{}, err
	}
	spec, err := ParseSpec(class.Spec)
	if err != nil {
		return provider.Instance{}, err
	}
	var made Instance
	err = s.sendRequest(ctx, http.MethodPost, PathInstances, CreateRequest{
		Name: machine.Name,
		Tags: Tags{
			Cluster:     machine.Cluster,
			Class:       classTag(class),
			MachineName: machine.Name,
			MachineUID:  machine.UID,
		},
		Spec:        spec,
		UserData:    class.Secret[SecretKeyUserData],
		ClientToken: request.Token,
		NotAfter:    request.NotAfter,
	}, &made)
	return toProviderInstance(made), err
}

// Initialize implements driver.Initializer. Initialize may be called repeatedly, and returns Unimplemented if the
// instance's class has no initialize step.
func (d *Driver) Initialize(
	ctx context.Context,
	class provider.Class,
	_ provider.Machine,
	instance provider.Instance,
) (provider.Instance, error) {
	s, err := d.openSession(class)
	if err != nil {
		return provider.Instance{}, err
	}
	_, id, err := SplitProviderID(instance.ProviderID)
	if err != nil {
		return provider.Instance{}, err
	}
	var initialized Instance
	err = s.sendRequest(ctx, http.MethodPost, PathInstances+"/"+id+"/initialize", nil, &initialized)
	return toProviderInstance(initialized), err
}

// Delete implements driver.Driver. If the instance belongs to another cluster, the cloud rejects the deletion.
func (d *Driver) Delete(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	instance provider.Instance,
) error {
	s, err := d.openSession(class)
	if err != nil {
		return err
	}
	_, id, err := SplitProviderID(instance.ProviderID)
	if err != nil {
		return err
	}
	query := url.Values{"cluster": {machine.Cluster}}
	return s.sendRequest(ctx, http.MethodDelete, PathInstances+"/"+url.PathEscape(id)+"?"+query.Encode(), nil, nil)
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context, class provider.Class, cluster string) ([]provider.Instance, error) {
	s, err := d.openSession(class)
	if err != nil {
		return nil, err
	}
	found, err := s.readAllPages(ctx, PathInstances, url.Values{"cluster": {cluster}, "class": {classTag(class)}})
	return found.Instances, err
}

// VolumeIDs implements driver.VolumeIDReader. VolumeIDs returns the handles of the volumes of virtualcloud's CSI
// driver.
func (d *Driver) VolumeIDs(_ context.Context, volumes []provider.Volume) ([]string, error) {
	ids := []string{}
	for _, v := range volumes {
		if v.CSIDriver == CSIDriver && v.Handle != "" {
			ids = append(ids, v.Handle)
		}
	}
	return ids, nil
}

// CreatedAt implements driver.CreationTimeReader.
func (d *Driver) CreatedAt(lastKnownState string) time.Time {
	return parseKnownState(lastKnownState).Created
}

// knownState is the content of LastKnownState.
type knownState struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"` // creation time by the cloud's clock
}

// parseKnownState parses a LastKnownState. If another provider or version wrote the text, parseKnownState returns the
// zero value.
func parseKnownState(text string) knownState {
	var k knownState
	if json.Unmarshal([]byte(text), &k) != nil {
		return knownState{}
	}
	return k
}

func toProviderInstance(w Instance) provider.Instance {
	state := provider.State("") // a pending instance has an empty state
	switch {
	case w.State == StateTerminating:
		state = provider.Terminating
	case w.State == StateTerminated:
		state = provider.Terminated
	case w.NeedsInitialization && !w.Initialized:
		state = provider.Uninitialized
	case w.State == StateRunning:
		state = provider.Running
	}
	addresses := []provider.Address{{Type: "InternalIP", Address: w.Address}}
	if w.NodeName != "" {
		addresses = append(addresses, provider.Address{Type: "Hostname", Address: w.NodeName})
	}
	lastKnown, _ := json.Marshal(knownState{ID: w.ID, Created: w.Created}) // a string and a time always have a JSON form
	return provider.Instance{
		ProviderID:     w.ProviderID,
		NodeName:       w.NodeName,
		MachineName:    w.Tags.MachineName,
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

// SplitProviderID returns the region and the ID (i-N) of an instance. SplitProviderID returns an error with the code
// InvalidArgument for a provider ID of another cloud.
func SplitProviderID(providerID string) (region, id string, err error) {
	rest, isVirtual := strings.CutPrefix(providerID, "virtual:///")
	region, id, hasID := strings.Cut(rest, "/")
	if !isVirtual || !hasID || !strings.HasPrefix(id, "i-") {
		return "", "", provider.Errorf(
			provider.InvalidArgument,
			"provider ID %q is not of the form virtual:///REGION/i-N",
			providerID,
		)
	}
	return region, id, nil
}
