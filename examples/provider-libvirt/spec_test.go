package libvirt

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
)

func classWithSpec(spec string) provider.Class {
	return provider.Class{
		Namespace: "shop",
		Name:      "small",
		Spec:      json.RawMessage(spec),
		Secret:    provider.Secret{secretKeyUserData: []byte("name: \"a\"\n<b>")},
	}
}

func TestDomainDefinitionHasTagsAndUserData(t *testing.T) {
	machine := provider.Machine{Cluster: "c", Namespace: "shop", Name: "m-1", UID: "u-1"}
	id := "4c2b6a1e-0000-4000-8000-000000000001"
	got, err := domainDefinition(
		classWithSpec(`{"type": "kvm", "definition": "<memory>1</memory>", "userDataEntry": "opt/user-data"}`),
		machine,
		id,
	)
	require.NoError(t, err)
	assert.Equal(t, `<domain type="kvm"><name>`+id+`</name><uuid>`+id+`</uuid><title>m-1</title>`+
		`<metadata><machine xmlns="urn:millwright:machine" cluster="c" class="shop/small" name="m-1" uid="u-1"></machine></metadata>`+
		`<sysinfo type="fwcfg"><entry name="opt/user-data">name: &#34;a&#34;&#xA;&lt;b&gt;</entry></sysinfo><memory>1</memory></domain>`, got)

	got, err = domainDefinition(classWithSpec(`{"type": "kvm", "definition": "<memory>1</memory>"}`), machine, id)
	require.NoError(t, err)
	assert.NotContains(t, got, "sysinfo")

	binary := classWithSpec(`{"type": "kvm", "definition": "<memory>1</memory>", "userDataEntry": "opt/user-data"}`)
	binary.Secret[secretKeyUserData] = []byte{0x1f, 0x8b}
	_, err = domainDefinition(binary, machine, id)
	assert.Equal(t, provider.InvalidArgument, provider.CodeOfError(err))
}

func TestInvalidSpecsAreRefused(t *testing.T) {
	for spec, message := range map[string]string{
		``:                                     "providerSpec: EOF",
		`{"definition": "<a/>"}`:               "providerSpec.type: is required",
		`{"type": "kvm"}`:                      "providerSpec.definition: is required",
		`{"memory": 1}`:                        `providerSpec: unknown field "memory"`,
		`{"type": "kvm", "definition": "<a>"}`: "providerSpec.definition: XML syntax error on line 1: unexpected EOF",
		`{"type": "kvm", "definition": "</domain><domain>"}`:     "providerSpec.definition: XML syntax error on line 1: unexpected end element </domain>",
		`{"type": "kvm", "definition": "<metadata/>"}`:           "providerSpec.definition: <metadata> is set by Millwright",
		`{"type": "kvm", "definition": "<vcpu>2</vcpu><name/>"}`: "providerSpec.definition: <name> is set by Millwright",
	} {
		_, err := ParseSpec(json.RawMessage(spec))
		assert.Equal(t, provider.InvalidArgument, provider.CodeOfError(err), spec)
		assert.ErrorContains(t, err, message)
	}
	_, err := ParseSpec(
		json.RawMessage(`{"type": "kvm", "definition": "<devices><disk><name>deep</name></disk></devices>"}`),
	)
	assert.NoError(t, err)
}

func TestProviderIDRoundTrip(t *testing.T) {
	id := uuid.MustParse("4c2b6a1e-0000-4000-8000-000000000001")
	got, err := parseProviderID(providerID(id))
	require.NoError(t, err)
	assert.Equal(t, id, got)
	for _, foreign := range []string{"", "aws:///i-1", "libvirt:///", id.String(), "libvirt:///4C2B6A1E-0000-4000-8000-000000000001"} {
		_, err := parseProviderID(foreign)
		assert.Equal(t, provider.InvalidArgument, provider.CodeOfError(err), foreign)
	}
}

// A message of libvirt may quote lines of the request's XML, which contain the XML-escaped user data.
func TestErrorMessagesHaveOneLineAndNoSecrets(t *testing.T) {
	s := session{class: provider.Class{Secret: provider.Secret{secretKeyUserData: []byte(`password="top & secret"`)}}}
	err := s.toProviderError(
		libvirt.Error{
			Code:    uint32(libvirt.ErrXMLError),
			Message: "line 1:\n<entry>password=&#34;top &amp; secret&#34;</entry>\n-----^",
		},
	)
	assert.Equal(t, provider.InvalidArgument, err.Code)
	assert.NotContains(t, err.Message, "secret")
	assert.NotContains(t, err.Message, "\n")
	assert.Contains(t, err.Message, "line 1: <entry>")
}

func TestLibvirtErrorsMapToProviderCodes(t *testing.T) {
	assert.Equal(
		t,
		provider.Unavailable,
		codeOfError(libvirt.ErrInterrupted),
		"whether the request took effect is not known",
	)
	assert.Equal(t, provider.Unimplemented, codeOfError(libvirt.ErrUnsupported))
	assert.Equal(t, provider.Unknown, codeOfError(libvirt.Error{Code: 9999}))
	assert.Equal(t, provider.Unavailable, codeOfError(errors.New("any other")))
}
