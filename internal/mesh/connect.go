package mesh

// connecting says whether ranks connect for messages, guarded by Mesh.mu.
type connecting struct {
	wanted bool
	begin  func()
}

// Connect has all ranks connect to each other for messages, each as OnConnect says. It floods once.
func (m *Mesh) Connect() {
	m.mu.Lock()
	known := m.connecting.wanted || m.closing
	m.connecting.wanted = m.connecting.wanted || !known
	begin := m.connecting.begin
	m.mu.Unlock()
	if known {
		return
	}
	m.flood(connect, m.rank, nil)
	if begin != nil {
		begin()
	}
}

// OnConnect has begin called once a rank asks all to connect, at once if one has. It does not block.
func (m *Mesh) OnConnect(begin func()) {
	m.mu.Lock()
	wanted := m.connecting.wanted
	m.connecting.begin = begin
	m.mu.Unlock()
	if wanted {
		begin()
	}
}
