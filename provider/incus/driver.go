// Package incus is the provider of Incus: it makes containers and virtual machines at a local or remote Incus server.
// It is a module of its own, because the client of Incus is large; its worker is in worker/.
//
// An instance has the name of its Machine, so that the server refuses a second one, and tags in its config ("user.…").
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

// Name is the name of this provider in a MachineClass.
const Name = "incus"

// Keys of the config of an instance.
const (
	tagCluster    = "user.millwright-cluster"
	tagClass      = "user.millwright-class" // namespace/name of the MachineClass
	tagMachine    = "user.millwright-machine"
	tagUID        = "user.millwright-uid"
	keyProviderID = "user.provider-id" // for the kubelet's flag --provider-id: the instance reads it from /dev/incus/sock
	keyUserData   = "user.user-data"
)

// Driver makes instances at Incus servers. Each call connects with the credentials of its class. The zero value is
// ready for use.
type Driver struct{}

var (
	_ driver.Driver      = Driver{}
	_ driver.Initializer = Driver{}
)

// New returns the provider.
func New(options ...driver.Option) *driver.Provider { return driver.New(Driver{}, options...) }

// Traits implements driver.Driver: names are unique in a project, and the server's database is read after each write.
func (Driver) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return provider.Traits{Idempotency: provider.ByName}, nil
}

// Find implements driver.Driver.
func (Driver) Find(ctx context.Context, class provider.Class, machine provider.Machine) (driver.Found, error) {
	s, err := connect(ctx, class, parseLocation(class.Spec))
	if err != nil {
		return driver.Found{}, err
	}
	defer s.close()
	all, err := s.list(machine.Cluster)
	if err != nil {
		return driver.Found{}, err
	}
	var found driver.Found
	for _, i := range all {
		// The name counts in its class only.
		if i.MachineUID != "" || i.ProviderID == machine.ProviderID || i.class == classTag(class) {
			found.Instances = append(found.Instances, i.Instance)
		}
	}
	return found, nil
}

// Create implements driver.Driver: it makes and starts the instance in one operation of the server, and waits for its
// end.
func (Driver) Create(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	_ driver.Request,
) (provider.Instance, error) {
	s, err := open(ctx, class)
	if err != nil {
		return provider.Instance{}, err
	}
	defer s.close()
	post := s.spec.instance()
	if post.Name = machine.Name; !isInstanceName(post.Name) {
		return provider.Instance{}, provider.Errorf(
			provider.InvalidArgument,
			"an instance of Incus cannot be called %q: use 1 to 63 letters, digits and hyphens, the first and the last of them no hyphen",
			post.Name,
		)
	}
	post.Config[tagCluster], post.Config[tagClass] = machine.Cluster, classTag(class)
	post.Config[tagMachine], post.Config[tagUID] = machine.Name, machine.UID
	post.Config[keyProviderID] = s.providerID(machine.Name, machine.UID)
	if data, has := class.Secret[keyOfUserData]; has {
		post.Config[keyUserData] = string(data)
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
		return provider.Instance{}, s.whyNotCreated(ctx, machine, err)
	}
	return s.instanceOf(machine.Name)
}

// whyNotCreated gives the failure of a creation a code. The server answers nearly all of them with status 500 or as a
// failed operation, so the facts are looked up: whether the name is taken (perhaps by the machine's own instance, which
// was made and could not be started), a limit of the project is reached, or something is missing that the class names.
func (s *session) whyNotCreated(ctx context.Context, machine provider.Machine, failure error) error {
	said := coded(failure)
	if ctx.Err() != nil {
		return said
	}
	if _, err := s.get(machine.Name); err == nil {
		return provider.Errorf(
			provider.AlreadyExists,
			"project %s has an instance %s: %s",
			s.spec.Project,
			machine.Name,
			said.Message,
		)
	}
	switch {
	case s.isFull():
		said.Code = provider.ResourceExhausted
	case s.lacks() != "":
		said.Code = provider.InvalidArgument
		said.Message += ": " + s.lacks()
	}
	return said
}

// isFull reports whether a limit of the project is reached.
func (s *session) isFull() bool {
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

// lacks says what a class names and the server does not have; empty: nothing, or it is not known.
func (s *session) lacks() string {
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

// Initialize implements driver.Initializer: it starts an instance that was made and could not be started.
func (Driver) Initialize(
	ctx context.Context,
	class provider.Class,
	_ provider.Machine,
	instance provider.Instance,
) (provider.Instance, error) {
	s, err := connect(ctx, class, parseLocation(class.Spec))
	if err != nil {
		return provider.Instance{}, err
	}
	defer s.close()
	name, err := s.nameOf(instance.ProviderID)
	if err != nil || instance.State != provider.Uninitialized {
		return instance, err
	}
	if err := s.change(ctx, name, api.InstanceStatePut{Action: "start", Timeout: -1}); err != nil {
		return provider.Instance{}, err
	}
	return s.instanceOf(name)
}

// Delete implements driver.Driver. It stops the instance without waiting for its programs, and deletes it with its
// volumes.
func (Driver) Delete(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	instance provider.Instance,
) error {
	s, err := connect(ctx, class, parseLocation(class.Spec))
	if err != nil {
		return err
	}
	defer s.close()
	name, err := s.nameOf(instance.ProviderID)
	if err != nil {
		return err
	}
	there, err := s.get(name)
	switch {
	case err != nil:
		return err
	case there.ProviderID != instance.ProviderID: // a later instance has the name
		return provider.Errorf(provider.NotFound, "instance %s is gone", instance.ProviderID)
	case there.cluster != machine.Cluster:
		return provider.Errorf(provider.FailedPrecondition, "instance %s belongs to another cluster", name)
	}
	if there.State == provider.Running {
		// Whoever stops it at the same time has done it for us: the deletion tells whether it runs.
		_ = s.change(ctx, name, api.InstanceStatePut{Action: "stop", Force: true, Timeout: -1})
	}
	operation, err := s.server.DeleteInstance(name)
	if err == nil {
		err = operation.WaitContext(ctx)
	}
	return refused(err)
}

// List implements driver.Driver.
func (Driver) List(ctx context.Context, class provider.Class, cluster string) ([]provider.Instance, error) {
	s, err := connect(ctx, class, parseLocation(class.Spec))
	if err != nil {
		return nil, err
	}
	defer s.close()
	all, err := s.list(cluster)
	var listed []provider.Instance
	for _, i := range all {
		if i.class == classTag(class) {
			listed = append(listed, i.Instance)
		}
	}
	return listed, err
}

func classTag(class provider.Class) string { return class.Namespace + "/" + class.Name }

// instance is an instance with the tags that provider.Instance lacks.
type instance struct {
	provider.Instance

	cluster, class string
}

// list returns the instances of a cluster in the project.
func (s *session) list(cluster string) ([]instance, error) {
	all, err := s.server.GetInstancesWithFilter(api.InstanceTypeAny, []string{"config." + tagCluster + "=" + cluster})
	if err != nil {
		return nil, coded(err)
	}
	var listed []instance
	for _, i := range all {
		if seen := s.seen(i); seen.cluster == cluster { // an older server may not filter
			listed = append(listed, seen)
		}
	}
	return listed, nil
}

// get returns the instance of a name.
func (s *session) get(name string) (instance, error) {
	i, _, err := s.server.GetInstance(name)
	if err != nil {
		return instance{}, coded(err)
	}
	return s.seen(*i), nil
}

// instanceOf is get without the tags.
func (s *session) instanceOf(name string) (provider.Instance, error) {
	i, err := s.get(name)
	return i.Instance, err
}

// seen translates an instance of the server.
func (s *session) seen(i api.Instance) instance {
	id := i.Config[keyProviderID]
	if id == "" { // made by another program
		id = s.providerID(i.Name, "")
	}
	state := provider.Running // frozen or in error: it exists
	if i.StatusCode == api.Stopped {
		state = provider.Uninitialized
	}
	return instance{
		Instance: provider.Instance{
			ProviderID: id, NodeName: i.Name, MachineName: i.Config[tagMachine], MachineUID: i.Config[tagUID],
			Addresses: []provider.Address{{Type: "Hostname", Address: i.Name}},
			State:     state, Created: i.CreatedAt,
		},
		cluster: i.Config[tagCluster], class: i.Config[tagClass],
	}
}

// providerID returns the provider ID of an instance. Its last part tells it from others of the same name, before and
// after it: it is derived from the machine's UID. Instances of other programs do not have it.
func (s *session) providerID(name, uid string) string {
	id := "incus:///" + s.spec.Project + "/" + name
	if uid == "" {
		return id
	}
	sum := sha256.Sum256([]byte(uid))
	return id + "/" + hex.EncodeToString(sum[:4])
}

// nameOf returns the name in a provider ID.
func (s *session) nameOf(providerID string) (string, error) {
	rest, ours := strings.CutPrefix(providerID, "incus:///")
	parts := strings.Split(rest, "/")
	if !ours || len(parts) < 2 || len(parts) > 3 || !isInstanceName(parts[1]) {
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

// change changes the state of an instance, and waits until it is reached.
func (s *session) change(ctx context.Context, name string, state api.InstanceStatePut) error {
	operation, err := s.server.UpdateInstanceState(name, state, "")
	if err == nil {
		err = operation.WaitContext(ctx)
	}
	return refused(err)
}

// refused is coded for an error that may be nil.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return coded(err)
}

// coded gives an error of the server a code, and keeps its words. The failure of an operation has no status: its code
// is Internal.
func coded(err error) *provider.Error {
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

// session is a connection with the credentials of one class.
type session struct {
	server incus.InstanceServer
	spec   Spec
	http   *http.Client
}

// open connects for a class whose whole spec must be valid.
func open(ctx context.Context, class provider.Class) (*session, error) {
	spec, err := ParseSpec(class.Spec)
	if err != nil {
		return nil, err
	}
	return connect(ctx, class, spec)
}

// connect connects to the server of a class.
func connect(ctx context.Context, class provider.Class, spec Spec) (*session, error) {
	arguments := incus.ConnectionArgs{
		SkipGetServer: true, SkipGetEvents: true, // the end of an operation is waited for by a request
		TLSClientCert: string(class.Secret[keyOfClientCert]), TLSClientKey: string(class.Secret[keyOfClientKey]),
		TLSServerCert: string(class.Secret[keyOfServerCert]), IdenticalCertificate: len(class.Secret[keyOfServerCert]) > 0,
	}
	server, err := dial(ctx, spec.Endpoint, arguments)
	if err != nil {
		return nil, err
	}
	client, err := server.GetHTTPClient()
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", spec.Endpoint, err)
	}
	return &session{server: server.UseProject(spec.Project), spec: spec, http: client}, nil
}

func dial(ctx context.Context, endpoint string, arguments incus.ConnectionArgs) (incus.InstanceServer, error) {
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
			keyOfClientCert,
			keyOfClientKey,
		)
	}
	server, err := incus.ConnectIncusWithContext(ctx, endpoint, &arguments)
	if err != nil { // nothing was sent yet: the certificate or the key is malformed
		return nil, provider.Errorf(
			provider.Unauthenticated,
			"the certificate, the key or the server's certificate in the Secret of the class is malformed",
		)
	}
	return server, nil
}

func (s *session) close() { s.http.CloseIdleConnections() }
