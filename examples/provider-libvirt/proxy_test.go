//go:build integration

package libvirt_test

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	client "github.com/digitalocean/go-libvirt"
	"github.com/stretchr/testify/require"

	"millwright/provider"
)

// procedures are the numbers of the requests that decide about a method, in libvirt's protocol.
var procedures = map[provider.Method]uint32{
	provider.MethodCreateInstance: 10,  // REMOTE_PROC_DOMAIN_CREATE_XML
	provider.MethodDeleteInstance: 12,  // REMOTE_PROC_DOMAIN_DESTROY
	provider.MethodInstanceStatus: 273, // REMOTE_PROC_CONNECT_LIST_ALL_DOMAINS
	provider.MethodListInstances:  273,
}

// proxy is between the provider and the daemon. It refuses or holds requests, and loses answers.
type proxy struct {
	socket string

	mu       sync.Mutex
	refusals map[uint32][]refusal
	held     map[uint32]bool
	lost     map[uint32]bool
}

type refusal struct {
	number  client.ErrorNumber
	message string
}

func newProxy(t *testing.T, daemon string) *proxy {
	t.Helper()
	p := &proxy{
		socket:   filepath.Join(filepath.Dir(daemon), "proxy"),
		refusals: map[uint32][]refusal{},
		held:     map[uint32]bool{},
		lost:     map[uint32]bool{},
	}
	listener, err := net.Listen("unix", p.socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(from, daemon)
		}
	}()
	return p
}

func (p *proxy) serve(from net.Conn, daemon string) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("unix", daemon)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = io.Copy(from, to)
	}()
	for {
		packet, err := readPacket(from)
		if err != nil {
			return
		}
		refused, held := p.admit(packet)
		switch {
		case held:
		case refused.number != 0:
			_, err = from.Write(refused.answer(packet))
		case p.loses(packet):
			_ = from.Close()
			_, _ = to.Write(packet)
			<-answered // and nobody took it
			return
		default:
			_, err = to.Write(packet)
		}
		if err != nil {
			return
		}
	}
}

// A packet is its length, then program, version, procedure, type, serial and status, and then the payload; all numbers
// have four bytes.
func readPacket(from io.Reader) ([]byte, error) {
	packet := make([]byte, 4)
	if _, err := io.ReadFull(from, packet); err != nil {
		return nil, err
	}
	packet = append(packet, make([]byte, binary.BigEndian.Uint32(packet)-4)...)
	_, err := io.ReadFull(from, packet[4:])
	return packet, err
}

// admit says what happens to a request.
func (p *proxy) admit(packet []byte) (refusal, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	procedure := binary.BigEndian.Uint32(packet[12:])
	queue := p.refusals[procedure]
	if len(queue) == 0 {
		return refusal{}, p.held[procedure]
	}
	p.refusals[procedure] = queue[1:]
	return queue[0], false
}

// answer is the answer of a daemon that refuses the request.
func (r refusal) answer(request []byte) []byte {
	const reply, failed = 1, 1
	packet := append([]byte{0, 0, 0, 0}, request[4:16]...)
	for _, number := range []uint32{reply, binary.BigEndian.Uint32(request[20:]), failed, uint32(r.number), 0, 1, uint32(len(r.message))} {
		packet = binary.BigEndian.AppendUint32(packet, number)
	}
	packet = append(packet, r.message...)
	packet = append(packet, make([]byte, (4-len(r.message)%4)%4)...)
	packet = append(packet, make([]byte, 4*8)...) // level, and what the error is about: nothing
	binary.BigEndian.PutUint32(packet, uint32(len(packet)))
	return packet
}

func (p *proxy) fail(method provider.Method, number client.ErrorNumber, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	procedure := procedures[method]
	p.refusals[procedure] = append(p.refusals[procedure], refusal{number, message})
}

// lose makes the next answer to a method's request vanish, with the connection.
func (p *proxy) lose(method provider.Method) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost[procedures[method]] = true
}

func (p *proxy) loses(packet []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	procedure := binary.BigEndian.Uint32(packet[12:])
	defer delete(p.lost, procedure)
	return p.lost[procedure]
}

func (p *proxy) hang(method provider.Method) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[procedures[method]] = true
}
