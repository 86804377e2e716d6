// Package incus is the provider for Incus: instances are containers and virtual machines of a local or remote Incus
// server. Package incus is a separate module, because the client of Incus is large. The folder worker contains the
// worker for Incus.
//
// An instance has the name of its Machine, so the server refuses a second instance for a Machine. The tags of an
// instance are in the instance's config, under keys that begin with "user.".
package incus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	incus "github.com/lxc/incus/v6/client"
	"github.com/lxc/incus/v6/shared/api"

	"millwright/provider"
	"millwright/provider/driver"
)

// Name is the name of the provider incus in a MachineClass.
const Name = "incus"

// Keys of the config of an instance.
const (
	tagCluster = "user.millwright-cluster"
	tagClass   = "user.millwright-class" // namespace/name of the MachineClass
	tagMachine = "user.millwright-machine"
	tagUID     = "user.millwright-uid"
	// the instance reads the key from /dev/incus/sock and passes it to the kubelet's flag --provider-id
	configKeyProviderID = "user.provider-id"
	configKeyUserData   = "user.user-data"
)

// Driver creates instances on Incus servers. Each call connects with the credentials of its class. The zero value of
// Driver is valid.
type Driver struct{}

var (
	_ driver.Driver      = Driver{}
	_ driver.Initializer = Driver{}
)

// New returns a Provider for Incus.
func New(options ...driver.Option) *driver.Provider { return driver.New(Driver{}, options...) }

// Traits implements driver.Driver. Instance names are unique in a project. Reads of the server's database are never
// stale.
func (Driver) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return provider.Traits{Idempotency: provider.ByName}, nil
}

// Find implements driver.Driver.
func (Driver) Find(ctx context.Context, class provider.Class, machine provider.Machine) (driver.SearchResult, error) {
	s, err := openSessionWithSpec(ctx, class, parseEndpointAndProject(class.Spec))
	if err != nil {
		return driver.SearchResult{}, err
	}
	defer s.close()
	all, err := s.listInstances(machine.Cluster)
	if err != nil {
		return driver.SearchResult{}, err
	}
	var found driver.SearchResult
	for _, i := range all {
		// An instance without a UID tag must belong to the class.
		if i.MachineUID != "" || i.ProviderID == machine.ProviderID || i.class == classTag(class) {
			found.Instances = append(found.Instances, i.Instance)
		}
	}
	return found, nil
}

// Create implements driver.Driver. Create makes and starts the instance in one operation of the server, and waits for
// the end of the operation.
func (Driver) Create(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	_ driver.CreateRequest,
) (provider.Instance, error) {
	s, err := openSession(ctx, class)
	if err != nil {
		return provider.Instance{}, err
	}
	defer s.close()
	post := s.spec.newCreateRequest()
	if post.Name = machine.Name; !isValidInstanceName(post.Name) {
		return provider.Instance{}, provider.Errorf(
			provider.InvalidArgument,
			"an instance of Incus cannot be called %q: a name has 1 to 63 letters, digits and hyphens, not only digits, and no hyphen at its begin or end",
			post.Name,
		)
	}
	post.Config[tagCluster], post.Config[tagClass] = machine.Cluster, classTag(class)
	post.Config[tagMachine], post.Config[tagUID] = machine.Name, machine.UID
	post.Config[configKeyProviderID] = s.providerID(machine.Name, machine.UID)
	if data, has := class.Secret[secretKeyUserData]; has {
		post.Config[configKeyUserData] = string(data)
	}
	server := s.server
	if s.spec.Target != "" {
		server = server.UseTarget(s.spec.Target)
	}
	operation, err := server.CreateInstance(post)
	if err == nil {
		err = operation.WaitContext(ctx)
	}
	if err != nil {
		return provider.Instance{}, s.toCreateError(ctx, machine, err)
	}
	return s.getProviderInstance(machine.Name)
}

// toCreateError maps the failure of a creation to an error with a code. The server reports nearly every failure with
// HTTP status 500 or as a failed operation. Therefore, toCreateError queries the server. toCreateError checks whether
// the name is in use (maybe by the machine's own instance, which was created but not started), whether the project has
// reached a limit, and whether the class refers to a missing object.
func (s *session) toCreateError(ctx context.Context, machine provider.Machine, failure error) error {
	said := toProviderError(failure)
	if ctx.Err() != nil {
		return said
	}
	if _, err := s.getInstance(machine.Name); err == nil {
		return provider.Errorf(
			provider.AlreadyExists,
			"project %s has an instance %s: %s",
			s.spec.Project,
			machine.Name,
			said.Message,
		)
	}
	switch {
	case s.hasReachedLimit():
		said.Code = provider.ResourceExhausted
	case s.missingReferenceText() != "":
		said.Code = provider.InvalidArgument
		said.Message += ": " + s.missingReferenceText()
	}
	return said
}

// hasReachedLimit reports whether any resource usage of the project has reached its limit.
func (s *session) hasReachedLimit() bool {
	state, err := s.server.GetProjectState(s.spec.Project)
	if err != nil {
		return false
	}
	for _, of := range state.Resources {
		if of.Limit >= 0 && of.Usage >= of.Limit {
			return true
		}
	}
	return false
}

// missingReferenceText returns a text about the first project, profile or image of the class that does not exist. The
// text is empty if all exist or if the server does not answer.
func (s *session) missingReferenceText() string {
	missing := func(err error) bool { return api.StatusErrorCheck(err, http.StatusNotFound) }
	if _, _, err := s.server.GetProject(s.spec.Project); missing(err) {
		return fmt.Sprintf("project %s does not exist", s.spec.Project)
	}
	for _, profile := range s.spec.Profiles {
		if _, _, err := s.server.GetProfile(profile); missing(err) {
			return fmt.Sprintf("project %s has no profile %s", s.spec.Project, profile)
		}
	}
	if of := s.spec.Image; of.Server == "" && of.Alias != "" {
		if _, _, err := s.server.GetImageAlias(of.Alias); missing(err) {
			return fmt.Sprintf("project %s has no image %s", s.spec.Project, of.Alias)
		}
	}
	return ""
}

// Initialize implements driver.Initializer. Initialize starts an instance that was created but could not be started.
func (Driver) Initialize(
	ctx context.Context,
	class provider.Class,
	_ provider.Machine,
	instance provider.Instance,
) (provider.Instance, error) {
	s, err := openSessionWithSpec(ctx, class, parseEndpointAndProject(class.Spec))
	if err != nil {
		return provider.Instance{}, err
	}
	defer s.close()
	name, err := s.instanceNameFromProviderID(instance.ProviderID)
	if err != nil || instance.State != provider.Uninitialized {
		return instance, err
	}
	if err := s.changeInstanceState(ctx, name, api.InstanceStatePut{Action: "start", Timeout: -1}); err != nil {
		return provider.Instance{}, err
	}
	return s.getProviderInstance(name)
}

// Delete implements driver.Driver. Delete stops the instance without waiting until its programs end, and deletes the
// instance with its volumes.
func (Driver) Delete(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	instance provider.Instance,
) error {
	s, err := openSessionWithSpec(ctx, class, parseEndpointAndProject(class.Spec))
	if err != nil {
		return err
	}
	defer s.close()
	name, err := s.instanceNameFromProviderID(instance.ProviderID)
	if err != nil {
		return err
	}
	there, err := s.getInstance(name)
	switch {
	case err != nil:
		return err
	case there.ProviderID != instance.ProviderID: // the name belongs to a newer instance
		return provider.Errorf(provider.NotFound, "instance %s is gone", instance.ProviderID)
	case there.cluster != machine.Cluster:
		return provider.Errorf(provider.FailedPrecondition, "instance %s belongs to another cluster", name)
	}
	if there.State == provider.Running {
		// The error is ignored: another caller may stop the instance at the same time. If the instance still runs, the
		// deletion below returns an error.
		_ = s.changeInstanceState(ctx, name, api.InstanceStatePut{Action: "stop", Force: true, Timeout: -1})
	}
	operation, err := s.server.DeleteInstance(name)
	if err == nil {
		err = operation.WaitContext(ctx)
	}
	return toProviderErrorOrNil(err)
}

// List implements driver.Driver.
func (Driver) List(ctx context.Context, class provider.Class, cluster string) ([]provider.Instance, error) {
	s, err := openSessionWithSpec(ctx, class, parseEndpointAndProject(class.Spec))
	if err != nil {
		return nil, err
	}
	defer s.close()
	all, err := s.listInstances(cluster)
	var listed []provider.Instance
	for _, i := range all {
		if i.class == classTag(class) {
			listed = append(listed, i.Instance)
		}
	}
	return listed, err
}

func classTag(class provider.Class) string { return class.Namespace + "/" + class.Name }

// taggedInstance is a provider.Instance with two additional tags.
type taggedInstance struct {
	provider.Instance

	cluster, class string
}

// listInstances returns all instances of a cluster in the project of the class.
func (s *session) listInstances(cluster string) ([]taggedInstance, error) {
	all, err := s.server.GetInstancesWithFilter(api.InstanceTypeAny, []string{"config." + tagCluster + "=" + cluster})
	if err != nil {
		return nil, toProviderError(err)
	}
	var listed []taggedInstance
	for _, i := range all {
		if seen := s.toTaggedInstance(i); seen.cluster == cluster { // older servers may ignore the filter
			listed = append(listed, seen)
		}
	}
	return listed, nil
}

// getInstance returns the instance with the given name.
func (s *session) getInstance(name string) (taggedInstance, error) {
	i, _, err := s.server.GetInstance(name)
	if err != nil {
		return taggedInstance{}, toProviderError(err)
	}
	return s.toTaggedInstance(*i), nil
}

// getProviderInstance returns the instance with the given name, as a provider.Instance.
func (s *session) getProviderInstance(name string) (provider.Instance, error) {
	i, err := s.getInstance(name)
	return i.Instance, err
}

// toTaggedInstance converts the server's representation of an instance.
func (s *session) toTaggedInstance(i api.Instance) taggedInstance {
	id := i.Config[configKeyProviderID]
	if id == "" { // another program has created the instance
		id = s.providerID(i.Name, "")
	}
	state := provider.Running // frozen instances and instances in error are also Running
	if i.StatusCode == api.Stopped {
		state = provider.Uninitialized
	}
	return taggedInstance{
		Instance: provider.Instance{
			ProviderID: id, NodeName: i.Name, MachineName: i.Config[tagMachine], MachineUID: i.Config[tagUID],
			Addresses: []provider.Address{{Type: "Hostname", Address: i.Name}},
			State:     state, Created: i.CreatedAt,
		},
		cluster: i.Config[tagCluster], class: i.Config[tagClass],
	}
}

// providerID returns the provider ID of an instance. The last part of the ID is derived from the machine's UID, and
// distinguishes the instance from earlier and later instances with the same name. The IDs of instances that other
// programs created do not have the last part.
func (s *session) providerID(name, uid string) string {
	id := "incus:///" + s.spec.Project + "/" + name
	if uid == "" {
		return id
	}
	sum := sha256.Sum256([]byte(uid))
	return id + "/" + hex.EncodeToString(sum[:4])
}

// instanceNameFromProviderID returns the instance's name from a provider ID. instanceNameFromProviderID returns an
// error if the provider ID has another form or belongs to another project.
func (s *session) instanceNameFromProviderID(providerID string) (string, error) {
	rest, ours := strings.CutPrefix(providerID, "incus:///")
	parts := strings.Split(rest, "/")
	if !ours || len(parts) < 2 || len(parts) > 3 || !isValidInstanceName(parts[1]) {
		return "", provider.Errorf(
			provider.InvalidArgument,
			"provider ID %q is not of the form incus:///PROJECT/NAME/SUFFIX",
			providerID,
		)
	}
	if parts[0] != s.spec.Project {
		return "", provider.Errorf(
			provider.InvalidArgument,
			"instance %s is in project %s, and the class's project is %s",
			parts[1],
			parts[0],
			s.spec.Project,
		)
	}
	return parts[1], nil
}

// changeInstanceState requests a new state of an instance, and waits until the instance has reached the state.
func (s *session) changeInstanceState(ctx context.Context, name string, state api.InstanceStatePut) error {
	operation, err := s.server.UpdateInstanceState(name, state, "")
	if err == nil {
		err = operation.WaitContext(ctx)
	}
	return toProviderErrorOrNil(err)
}

// toProviderErrorOrNil is toProviderError, but returns nil for nil.
func toProviderErrorOrNil(err error) error {
	if err == nil {
		return nil
	}
	return toProviderError(err)
}

// toProviderError maps an error of the server to a provider.Error with a code. toProviderError keeps the message, but
// puts it on one line. An operation's failure has no HTTP status and gets the code Internal.
func toProviderError(err error) *provider.Error {
	status, has := api.StatusErrorMatch(err)
	code := provider.Internal
	switch {
	case !has:
	case status == http.StatusBadRequest:
		code = provider.InvalidArgument
	case status == http.StatusUnauthorized:
		code = provider.Unauthenticated
	case status == http.StatusForbidden:
		code = provider.PermissionDenied
	case status == http.StatusNotFound:
		code = provider.NotFound
	case status == http.StatusConflict:
		code = provider.AlreadyExists
	case status == http.StatusPreconditionFailed:
		code = provider.FailedPrecondition
	case status == http.StatusTooManyRequests:
		code = provider.ResourceExhausted
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable:
		code = provider.Unavailable
	case status == http.StatusGatewayTimeout:
		code = provider.DeadlineExceeded
	}
	return provider.Errorf(code, "%s", strings.Join(strings.Fields(err.Error()), " "))
}

// session is a connection to an Incus server with the credentials of one class.
type session struct {
	server     incus.InstanceServer
	spec       Spec
	httpClient *http.Client
}

// openSession connects to the server of a class. The complete spec of the class must be valid.
func openSession(ctx context.Context, class provider.Class) (*session, error) {
	spec, err := ParseSpec(class.Spec)
	if err != nil {
		return nil, err
	}
	return openSessionWithSpec(ctx, class, spec)
}

// openSessionWithSpec connects to the server of a class. Only the endpoint and the project of the spec must be valid.
func openSessionWithSpec(ctx context.Context, class provider.Class, spec Spec) (*session, error) {
	arguments := incus.ConnectionArgs{
		// the driver requests the result of an operation, and does not need events
		SkipGetServer: true,
		SkipGetEvents: true,
		TLSClientCert: string(class.Secret[secretKeyClientCert]),
		TLSClientKey:  string(class.Secret[secretKeyClientKey]),
		TLSServerCert: string(
			class.Secret[secretKeyServerCert],
		),
		IdenticalCertificate: len(class.Secret[secretKeyServerCert]) > 0,
	}
	server, err := dialServer(ctx, spec.Endpoint, arguments)
	if err != nil {
		return nil, err
	}
	client, err := server.GetHTTPClient()
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", spec.Endpoint, err)
	}
	return &session{server: server.UseProject(spec.Project), spec: spec, httpClient: client}, nil
}

// dialServer returns a client for the endpoint of a class.
func dialServer(ctx context.Context, endpoint string, arguments incus.ConnectionArgs) (incus.InstanceServer, error) {
	if path, local := strings.CutPrefix(endpoint, "unix://"); local {
		server, err := incus.ConnectIncusUnixWithContext(ctx, path, &arguments)
		if err != nil {
			return nil, provider.Errorf(provider.Unavailable, "the server at %s cannot be reached", endpoint)
		}
		return server, nil
	}
	if arguments.TLSClientCert == "" || arguments.TLSClientKey == "" {
		return nil, provider.Errorf(
			provider.Unauthenticated,
			"the Secret of the class has no keys %s and %s",
			secretKeyClientCert,
			secretKeyClientKey,
		)
	}
	server, err := incus.ConnectIncusWithContext(ctx, endpoint, &arguments)
	if err != nil { // no request was sent yet, so a certificate or the key is malformed
		return nil, provider.Errorf(
			provider.Unauthenticated,
			"the certificate, the key or the server's certificate in the Secret of the class is malformed",
		)
	}
	return server, nil
}

func (s *session) close() { s.httpClient.CloseIdleConnections() }
