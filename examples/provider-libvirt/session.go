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
	secretKeySocket   = "socket" // path of the daemon's socket, such as /run/libvirt/libvirt-sock; required
	secretKeyURI      = "uri"    // connection URI of a driver of the daemon; empty: qemu:///system
	secretKeyUserData = "userData"
)

// session is a connection to a daemon for one call of the Driver.
type session struct {
	*libvirt.Libvirt
	class provider.Class
	close func()
}

// openSession connects to the daemon of the class. The client of libvirt does not support contexts. Therefore the end
// of the context closes the connection, which ends every wait for an answer.
func openSession(ctx context.Context, class provider.Class) (session, error) {
	path, uri := string(class.Secret[secretKeySocket]), string(class.Secret[secretKeyURI])
	if path == "" {
		return session{}, provider.Errorf(provider.Unauthenticated, "Secret key %s: is missing", secretKeySocket)
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
		said := s.toProviderError(err)
		if isLibvirtError(err, libvirt.ErrRPC) { // the daemon requires authentication
			said.Code = provider.Unauthenticated
		}
		return session{}, said
	}
	return s, nil
}

// taggedInstance is a provider.Instance with the tags of its cluster and class.
type taggedInstance struct {
	provider.Instance
	cluster, class string
}

// listDomains returns the domains of a cluster. Domains without tags do not belong to Millwright.
func (s session) listDomains(cluster string) ([]taggedInstance, error) {
	domains, _, err := s.ConnectListAllDomains(1, 0) // all domains, running or not, in one answer
	if err != nil {
		return nil, s.toProviderError(err)
	}
	var ours []taggedInstance
	for _, d := range domains {
		instance, err := s.readTaggedInstance(d)
		switch {
		case provider.CodeOfError(err) == provider.NotFound: // the domain has no tags or has just ended
		case err != nil:
			return nil, err
		case instance.cluster == cluster:
			ours = append(ours, instance)
		}
	}
	return ours, nil
}

// readTaggedInstance reads the tags of a domain. readTaggedInstance returns NotFound if the domain has no tags.
func (s session) readTaggedInstance(d libvirt.Domain) (taggedInstance, error) {
	text, err := s.DomainGetMetadata(
		d,
		int32(libvirt.DomainMetadataElement),
		libvirt.OptString{tagsURI},
		libvirt.DomainAffectCurrent,
	)
	if err != nil {
		return taggedInstance{}, s.toProviderError(err)
	}
	var of machineTags
	if err := xml.Unmarshal([]byte(text), &of); err != nil {
		return taggedInstance{}, provider.Errorf(provider.Internal, "read the tags of domain %s: %v", uuid.UUID(d.UUID), err)
	}
	return taggedInstance{cluster: of.Cluster, class: of.Class, Instance: provider.Instance{
		ProviderID: providerID(uuid.UUID(d.UUID)), NodeName: of.Name, MachineName: of.Name, MachineUID: of.UID,
	}}, nil
}

// lookupDomain returns the domain with the UUID. lookupDomain returns NotFound if no domain of the cluster has the
// UUID.
func (s session) lookupDomain(id uuid.UUID, cluster string) (libvirt.Domain, taggedInstance, error) {
	d, err := s.DomainLookupByUUID(libvirt.UUID(id))
	if err != nil {
		return libvirt.Domain{}, taggedInstance{}, s.toProviderError(err)
	}
	instance, err := s.readTaggedInstance(d)
	if err == nil && instance.cluster != cluster {
		err = provider.Errorf(provider.NotFound, "domain %s is of another cluster", id)
	}
	return d, instance, err
}

const providerIDPrefix = "libvirt:///"

func providerID(id uuid.UUID) string { return providerIDPrefix + id.String() }

func parseProviderID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(strings.TrimPrefix(text, providerIDPrefix))
	if err != nil || providerID(id) != text {
		return uuid.UUID{}, provider.Errorf(provider.InvalidArgument, "provider ID %q: is not %sUUID", text, providerIDPrefix)
	}
	return id, nil
}

// toProviderError maps an error of the client to a provider.Error. libvirt's message may quote the XML of the request
// on several lines. toProviderError first redacts the values of the Secret, and then joins the lines.
func (s session) toProviderError(err error) *provider.Error {
	text := s.class.Secret.Redact(err.Error())
	return provider.Errorf(codeOfError(err), "%s", strings.Join(strings.Fields(text), " "))
}

func isLibvirtError(err error, number libvirt.ErrorNumber) bool {
	said, ok := errors.AsType[libvirt.Error](err)
	return ok && libvirt.ErrorNumber(said.Code) == number
}

// codesByErrorNumber maps libvirt's error numbers to codes. libvirt's drivers use InternalError and OperationFailed for
// all errors without a specific number.
var codesByErrorNumber = map[libvirt.ErrorNumber]provider.Code{
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

func codeOfError(err error) provider.Code {
	said, ok := errors.AsType[libvirt.Error](err)
	switch {
	case errors.Is(err, libvirt.ErrUnsupported):
		return provider.Unimplemented
	case !ok:
		return provider.Unavailable // the connection broke: the request may have taken effect
	}
	if code, known := codesByErrorNumber[libvirt.ErrorNumber(said.Code)]; known {
		return code
	}
	return provider.Unknown
}
