package libvirt

import (
	"context"
	"encoding/xml"
	"errors"
	"io/fs"
	"net"
	"strings"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"github.com/google/uuid"

	"millwright/provider"
)

// Keys of a class's Secret.
const (
	keyOfSocket   = "socket"   // path of the daemon's socket, such as /run/libvirt/libvirt-sock; required
	keyOfURI      = "uri"      // which of the daemon's drivers; empty: qemu:///system
	keyOfUserData = "userData" // user data of the instance
)

// session is a connection to a daemon, for one call.
type session struct {
	*libvirt.Libvirt
	class provider.Class
	close func()
}

// open connects to the daemon of the class. The client of libvirt knows no context: the end of the context closes the
// connection, and that ends whatever waits for an answer.
func open(ctx context.Context, class provider.Class) (session, error) {
	path, uri := string(class.Secret[keyOfSocket]), string(class.Secret[keyOfURI])
	if path == "" {
		return session{}, provider.Errorf(provider.Unauthenticated, "Secret key %s: is missing", keyOfSocket)
	}
	if uri == "" {
		uri = string(libvirt.QEMUSystem)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return session{}, provider.Errorf(provider.PermissionDenied, "connect to libvirt: %v", err)
	case err != nil:
		return session{}, provider.Errorf(provider.Unavailable, "connect to libvirt: %v", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	s := session{class: class, Libvirt: libvirt.NewWithDialer(dialers.NewAlreadyConnected(conn)), close: func() {
		stop()
		_ = conn.Close()
	}}
	if err := s.ConnectToURI(libvirt.ConnectURI(uri)); err != nil {
		s.close()
		said := s.withCode(err)
		if isError(err, libvirt.ErrRPC) { // what a daemon answers to a client that has not authenticated itself
			said.Code = provider.Unauthenticated
		}
		return session{}, said
	}
	return s, nil
}

// tagged is an instance with the tag of its class.
type tagged struct {
	provider.Instance
	cluster, class string
}

// list returns the domains of a cluster. Domains without tags are not ours.
func (s session) list(cluster string) ([]tagged, error) {
	domains, _, err := s.ConnectListAllDomains(1, 0) // running or not, in one answer without pages
	if err != nil {
		return nil, s.withCode(err)
	}
	var ours []tagged
	for _, d := range domains {
		instance, err := s.describe(d)
		switch {
		case provider.CodeOf(err) == provider.NotFound: // it has no tags, or has ended meanwhile
		case err != nil:
			return nil, err
		case instance.cluster == cluster:
			ours = append(ours, instance)
		}
	}
	return ours, nil
}

// describe reads the tags of a domain: NotFound if it has none.
func (s session) describe(d libvirt.Domain) (tagged, error) {
	text, err := s.DomainGetMetadata(
		d,
		int32(libvirt.DomainMetadataElement),
		libvirt.OptString{tagsURI},
		libvirt.DomainAffectCurrent,
	)
	if err != nil {
		return tagged{}, s.withCode(err)
	}
	var of tags
	if err := xml.Unmarshal([]byte(text), &of); err != nil {
		return tagged{}, provider.Errorf(provider.Internal, "read the tags of domain %s: %v", uuid.UUID(d.UUID), err)
	}
	return tagged{cluster: of.Cluster, class: of.Class, Instance: provider.Instance{
		ProviderID: providerID(uuid.UUID(d.UUID)), NodeName: of.Name, MachineName: of.Name, MachineUID: of.UID,
	}}, nil
}

// lookup returns the domain with that UUID, if it is one of the cluster: NotFound if not.
func (s session) lookup(id uuid.UUID, cluster string) (libvirt.Domain, tagged, error) {
	d, err := s.DomainLookupByUUID(libvirt.UUID(id))
	if err != nil {
		return libvirt.Domain{}, tagged{}, s.withCode(err)
	}
	instance, err := s.describe(d)
	if err == nil && instance.cluster != cluster {
		err = provider.Errorf(provider.NotFound, "domain %s is of another cluster", id)
	}
	return d, instance, err
}

const scheme = "libvirt:///"

func providerID(id uuid.UUID) string { return scheme + id.String() }

func parseProviderID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(strings.TrimPrefix(text, scheme))
	if err != nil || providerID(id) != text {
		return uuid.UUID{}, provider.Errorf(provider.InvalidArgument, "provider ID %q: is not %sUUID", text, scheme)
	}
	return id, nil
}

// withCode returns an error of the client with its code. The message is libvirt's, which may quote the XML that we sent,
// over several lines. They become one line, after the values of the Secret were removed as they stand.
func (s session) withCode(err error) *provider.Error {
	text := s.class.Secret.Redact(err.Error())
	return provider.Errorf(codeOf(err), "%s", strings.Join(strings.Fields(text), " "))
}

func isError(err error, number libvirt.ErrorNumber) bool {
	said, ok := errors.AsType[libvirt.Error](err)
	return ok && libvirt.ErrorNumber(said.Code) == number
}

// codes are what libvirt's numbers mean. Its drivers use InternalError and OperationFailed for everything that has no
// number.
var codes = map[libvirt.ErrorNumber]provider.Code{
	libvirt.ErrNoDomain:             provider.NotFound,
	libvirt.ErrNoDomainMetadata:     provider.NotFound,
	libvirt.ErrAuthFailed:           provider.Unauthenticated,
	libvirt.ErrAuthCancelled:        provider.Unauthenticated,
	libvirt.ErrAuthUnavailable:      provider.Unauthenticated,
	libvirt.ErrAccessDenied:         provider.PermissionDenied,
	libvirt.ErrOperationDenied:      provider.PermissionDenied,
	libvirt.ErrXMLError:             provider.InvalidArgument,
	libvirt.ErrXMLDetail:            provider.InvalidArgument,
	libvirt.ErrXMLInvalidSchema:     provider.InvalidArgument,
	libvirt.ErrInvalidArg:           provider.InvalidArgument,
	libvirt.ErrConfigUnsupported:    provider.InvalidArgument,
	libvirt.ErrOsType:               provider.InvalidArgument,
	libvirt.ErrNoMemory:             provider.ResourceExhausted,
	libvirt.ErrDriverFull:           provider.ResourceExhausted,
	libvirt.ErrOperationTimeout:     provider.DeadlineExceeded,
	libvirt.ErrOperationInvalid:     provider.Aborted,
	libvirt.ErrOperationAborted:     provider.Aborted,
	libvirt.ErrResourceBusy:         provider.Aborted,
	libvirt.ErrNoSupport:            provider.Unimplemented,
	libvirt.ErrOperationUnsupported: provider.Unimplemented,
	libvirt.ErrNoConnect:            provider.Unavailable,
	libvirt.ErrRPC:                  provider.Unavailable,
	libvirt.ErrInternalError:        provider.Internal,
	libvirt.ErrOperationFailed:      provider.Internal,
	libvirt.ErrSystemError:          provider.Internal,
}

func codeOf(err error) provider.Code {
	said, ok := errors.AsType[libvirt.Error](err)
	switch {
	case errors.Is(err, libvirt.ErrUnsupported):
		return provider.Unimplemented
	case !ok:
		return provider.Unavailable // the connection broke: whether the request took effect is not known
	}
	if code, known := codes[libvirt.ErrorNumber(said.Code)]; known {
		return code
	}
	return provider.Unknown
}
