package survey

import (
	"encoding/json"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestStrangersWhereHostsMeet: strangers are judged by their first bytes, and nothing after these is kept.
func TestStrangersWhereHostsMeet(t *testing.T) {
	m, err := openMeeting(&Options{Meet: "127.0.0.1:0", Hosts: 2, Token: "a <word>"})
	require.NoError(t, err)
	defer m.close()
	come := func(said []byte) net.Conn {
		conn, err := net.Dial("tcp", m.tcp.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(systest.Deadline()))
		_, err = conn.Write(said)
		require.NoError(t, err)
		return conn
	}
	var told order
	begins := append(opening("another word"), `"visit":"of a host whose facts`...)
	require.NoError(t, json.NewDecoder(come(begins)).Decode(&told))
	require.Equal(t, doRefuse, told.Do)
	answer, _ := io.ReadAll(come(make([]byte, 1000))) // it may be reset, as it has said more than was read
	require.Empty(t, answer)

	want := hello{Magic: magic, Token: "a <word>", Visit: "first"}
	text, err := json.Marshal(want)
	require.NoError(t, err)
	come(text)
	g := systest.Receive(t, m.arrivals, "who knows the token is not heard")
	assert.Equal(t, "first", g.Visit)
	require.NoError(t, g.Close())
}
