# Written by "go generate ./internal/api"; change internal/api/counters.go instead.
"""The counters of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .readings import Readings


@dataclass(frozen=True)
class Stats(Readings):
    """Counters of one rank since its group was joined, or between two readings (a - b).

    Printed, they are the counters above 0, by group. docs/reference/counters.md has all.

    Attributes:
        gather_ops (operations): Allgathers, Broadcasts and Barriers done, the steps of Allreduces
            included. Normal.
        gather_bytes (bytes): This rank's own shards in the Allgathers and Broadcasts that it has
            posted. Normal.
        gather_sent_bytes (bytes): Bytes of Allgathers and Broadcasts sent by multicast, or written
            to shared memory, headers included. Normal: a few per cent more than gather_bytes, at
            any number of ranks.
        gather_control_bytes (bytes): Bytes of control messages and repairs of Allgathers,
            Broadcasts and Barriers, sent to single ranks. Normal; where it comes near
            gather_sent_bytes, look at chunks_repaired of the other ranks.
        gather_received_bytes (bytes): Bytes of Allgathers and Broadcasts received by multicast, or
            read from shared memory, headers included, repairs not. Normal.
        reduce_ops (operations): Reduce-Scatters and Reduces done, the steps of Allreduces
            included: switch_ops and direct_ops together. Normal.
        reduce_bytes (bytes): This rank's own results of the Reduce-Scatters and Reduces that it
            has posted. Normal.
        reduce_sent_bytes (bytes): Bytes of Reduce-Scatters and Reduces sent to the switch or to
            other ranks, headers included. Normal: reduce_bytes times the number of other ranks (of
            other hosts, where the ranks of a host work together), and a few per cent.
        chunks_lost (chunks): Chunks that this rank asked for and that multicast did not bring
            after all. Normal up to 1 % of the chunks received; above that, a warning says where to
            look.
        chunks_repaired (chunks): Chunks that came by repair, over TCP or read by an RDMA device
            (chunks_read), because multicast had not brought them in time. Normal up to 1 % of the
            chunks received; above that, a warning says where to look.
        chunks_injected (chunks): Chunks and datagrams of the switch that this rank threw away on
            purpose. Should be 0; otherwise MCAST_LOSS is set.
        chunks_dropped (chunks): Chunks that arrived and were of no use: mostly second copies,
            where a chunk came by multicast and by repair, else late or malformed ones. No data are
            missing. Normal. Without chunks_repaired, multicast was late and not lost: a chunk was
            asked for, came by multicast after all, and its repair was not needed. Above 1 % of the
            chunks received, ranks wait for a core, or MCAST_CUTOFF is too short here. A stranger's
            chunks are in chunks_mismatched as well.
        gather_busy_ns (ns): Time with an Allgather, Broadcast or Barrier in flight. Normal.
        reduce_busy_ns (ns): Time with a Reduce-Scatter or Reduce in flight. Normal.
        overlap_ns (ns): Time with an Allgather, Broadcast or Barrier and a Reduce-Scatter or
            Reduce in flight. Normal: FSDP hides one behind the other that long.
        gather_queued_ns (ns): Time that Allgathers, Broadcasts and Barriers have waited for older
            ones, added up over the operations that are done. Normal where several are posted at
            once.
        reduce_queued_ns (ns): Time that Reduce-Scatters and Reduces have waited for older ones,
            added up over the operations that are done. Normal where several are posted at once.
        gather_peers_ns (ns): Time that Allgathers, Broadcasts and Barriers have waited for other
            ranks to post them, added up over the operations that are done. If it is the largest,
            look at what the slowest rank does meanwhile.
        reduce_peers_ns (ns): Time that Reduce-Scatters and Reduces have waited for other ranks to
            post them, added up over the operations that are done. If it is the largest, look at
            what the slowest rank does meanwhile.
        gather_turn_ns (ns): Time that Allgathers, Broadcasts and Barriers have waited with
            something to send, for a turn, credit or the foreground, added up over the operations
            that are done. Normal; in a group of MCAST_CLASS=background, training has the link in
            that time.
        reduce_turn_ns (ns): Time that Reduce-Scatters and Reduces have waited with something to
            send, for credit or the foreground, added up over the operations that are done. Normal;
            in a group of MCAST_CLASS=background, training has the link in that time.
        gather_transfer_ns (ns): Time that Allgathers, Broadcasts and Barriers have waited for
            bytes on their way, added up over the operations that are done. Normal; if the network
            should be faster, look at chunks_repaired.
        reduce_transfer_ns (ns): Time that Reduce-Scatters and Reduces have waited for bytes on
            their way, added up over the operations that are done. Normal; if the network should be
            faster, look at reduce_resent and fallbacks.
        gather_finish_ns (ns): Time that Allgathers, Broadcasts and Barriers have waited for the
            word of other ranks, all bytes being there, added up over the operations that are done.
            Normal; if it is large, look at chunks_repaired of the other ranks.
        reduce_finish_ns (ns): Time that Reduce-Scatters and Reduces have waited for the word of
            other ranks, all bytes being there, added up over the operations that are done. Normal.
        reduce_received_bytes (bytes): Bytes of Reduce-Scatters and Reduces received from the
            switch or from other ranks, headers included. Normal: about reduce_bytes through a
            switch; directly, that times the number of other ranks.
        reduce_resent (contributions): Contributions that were sent to the switch again. Normal up
            to 1 % of the contributions sent; above that, look at the drops of the interface, of
            the ports and of the switch.
        reduce_refused (datagrams): Datagrams that claimed to be the switch's and were garbled, or
            had a wrong tag: they were thrown away. Should be 0; otherwise look at who else sends
            to this rank (SECURITY.md).
        switch_ops (operations): Of reduce_ops, operations done through the switch. Where the ranks
            of a host work together, an operation counts if all that this rank sent to other hosts
            for it went through the switch. Normal.
        direct_ops (operations): Of reduce_ops, operations done directly, from the beginning or
            after the switch was lost. Normal without MCAST_SWITCH; with it, info() says why.
        fallbacks (times): Times that the switch was given up, and operations went on directly.
            Should be 0; otherwise info() says why, and the log of the switch.
        chunks_mismatched (chunks): Of chunks_dropped, chunks that belong to none of the group's
            operations, do not prove MCAST_SECRET, or have a wrong checksum (MCAST_CHECKSUM). No
            operation failed for them: they are a stranger's, or have changed on their way. Should
            be 0; otherwise another program sends to this group: look at MCAST_GROUP and
            MCAST_PORT; or, with MCAST_CHECKSUM, something on the path changes bytes.
        sends_refused (datagrams): Multicast datagrams that a firewall or security policy of this
            host refused; repairs bring what was in them. Should be 0; otherwise let UDP to the
            group pass (nft list ruleset).
        sends_offline (datagrams): Multicast datagrams that were not sent because the interface was
            down or had no address; repairs bring what was in them. Should be 0; otherwise look at
            the interface (ip addr, dmesg).
        sends_too_large (datagrams): Multicast datagrams that were not sent because the interface's
            MTU has been lowered; repairs bring what was in them. Should be 0; otherwise set the
            MTU back, or join again.
        warnings (causes): Causes of slowness that were logged and are in the notes of info().
            Should be 0; otherwise read the notes.
        reduce_dropped (results): Results from the switch that came twice, or that nothing waited
            for. No data are missing. Normal beside reduce_resent.
        chunks_relayed (chunks): Chunks that came from the left neighbour because multicast does
            not reach every rank, or MCAST_MULTICAST is off. Should be 0 on a network with
            multicast; otherwise info() says between which ranks it does not pass.
        shared_ops (operations): Allgathers with a result that lies once in memory that the ranks
            of a host share. Normal with MCAST_OUTPUTS and torch_mcast.fsdp; where it stands still
            there, info() says why.
        node_sent_bytes (bytes): Bytes written to the memory that ranks of a host share where they
            work together, headers and control messages included. Other counters have the bytes
            sent to other hosts. Normal. 0 where every rank stands alone: info() says why.
        node_received_bytes (bytes): Bytes read from the memory that ranks of a host share where
            they work together, headers included. Normal. 0 where every rank stands alone: info()
            says why.
        device_ops (operations): Operations on a GPU's tensors done; each is one or more operations
            of the other counters. Normal. 0 where tensors are on the CPU, or go over NCCL.
        device_out_bytes (bytes): Bytes copied from a GPU to staging memory. Normal: a shard in an
            Allgather, all shards in a Reduce-Scatter.
        device_in_bytes (bytes): Bytes copied from staging memory to a GPU. Normal: the shards of
            others in an Allgather, a shard in a Reduce-Scatter.
        device_made (times): Pinned memory, streams and events that the GPU's driver was asked for.
            Should stand still after the first step; otherwise works are kept that nobody needs.
        chunks_misplaced (chunks): Chunks received by multicast that the kernel wrote to a wrong
            place, so that they were copied once more. Normal: it costs only a copy. Above 2 % of
            the chunks received, several roots send at once in messages below 8 KiB, as with an MTU
            of 1500 where the kernel merges nothing.
        gather_lent_bytes (bytes): Of gather_sent_bytes, bytes that an RDMA device has read from
            registered memory by itself, without a copy. Normal. 0 where nothing is registered
            (mcast_register), and without RDMA.
        registrations (times): Times that memory was registered with the RDMA device of Allgathers
            and Broadcasts (ibv_reg_mr), its rings included. Should stand still after the first
            step; otherwise memory is registered for each operation: keep it registered.
        registrations_refused (times): Times that memory could not be registered, so that chunks
            are copied on their way from there. Should be 0; otherwise a warning names the cause,
            such as the limit of locked memory (ulimit -l).
        chunks_read (chunks): Of chunks_repaired, chunks that this rank's RDMA device has read from
            the left neighbour's memory; the others were pushed over TCP. Normal. 0 without RDMA,
            where the left neighbour has not registered its buffer (mcast_register), and after a
            read has failed.
        chunks_read_bytes (bytes): Bytes of the chunks in chunks_read. Normal.
        message_ops (operations): Sends, receives, all-to-alls, gathers and scatters posted.
            Normal.
        message_sent_bytes (bytes): Bytes of messages sent to other ranks, headers included.
            Normal.
        message_received_bytes (bytes): Bytes of messages received from other ranks, headers
            included. Normal.
    """

    units: ClassVar[dict[str, dict[str, str]]] = {
        "Allgather, Broadcast and Barrier": {
            "gather_ops": "operations",
            "gather_bytes": "bytes",
            "gather_sent_bytes": "bytes",
            "gather_control_bytes": "bytes",
            "gather_received_bytes": "bytes",
            "gather_busy_ns": "ns",
            "gather_queued_ns": "ns",
            "gather_peers_ns": "ns",
            "gather_turn_ns": "ns",
            "gather_transfer_ns": "ns",
            "gather_finish_ns": "ns",
            "chunks_relayed": "chunks",
            "shared_ops": "operations",
            "chunks_misplaced": "chunks",
            "gather_lent_bytes": "bytes",
        },
        "Reduce-Scatter and Reduce": {
            "reduce_ops": "operations",
            "reduce_bytes": "bytes",
            "reduce_sent_bytes": "bytes",
            "reduce_busy_ns": "ns",
            "reduce_queued_ns": "ns",
            "reduce_peers_ns": "ns",
            "reduce_turn_ns": "ns",
            "reduce_transfer_ns": "ns",
            "reduce_finish_ns": "ns",
            "reduce_received_bytes": "bytes",
        },
        "Both at once": {
            "overlap_ns": "ns",
        },
        "Messages from rank to rank": {
            "message_ops": "operations",
            "message_sent_bytes": "bytes",
            "message_received_bytes": "bytes",
        },
        "Losses and repairs": {
            "chunks_lost": "chunks",
            "chunks_repaired": "chunks",
            "chunks_injected": "chunks",
            "chunks_dropped": "chunks",
            "chunks_mismatched": "chunks",
            "chunks_read": "chunks",
            "chunks_read_bytes": "bytes",
        },
        "The switch": {
            "reduce_resent": "contributions",
            "reduce_refused": "datagrams",
            "switch_ops": "operations",
            "direct_ops": "operations",
            "fallbacks": "times",
            "reduce_dropped": "results",
        },
        "This host": {
            "sends_refused": "datagrams",
            "sends_offline": "datagrams",
            "sends_too_large": "datagrams",
            "warnings": "causes",
            "node_sent_bytes": "bytes",
            "node_received_bytes": "bytes",
            "registrations": "times",
            "registrations_refused": "times",
        },
        "GPUs": {
            "device_ops": "operations",
            "device_out_bytes": "bytes",
            "device_in_bytes": "bytes",
            "device_made": "times",
        },
    }

    gather_ops: int
    gather_bytes: int
    gather_sent_bytes: int
    gather_control_bytes: int
    gather_received_bytes: int
    reduce_ops: int
    reduce_bytes: int
    reduce_sent_bytes: int
    chunks_lost: int
    chunks_repaired: int
    chunks_injected: int
    chunks_dropped: int
    gather_busy_ns: int
    reduce_busy_ns: int
    overlap_ns: int
    gather_queued_ns: int
    reduce_queued_ns: int
    gather_peers_ns: int
    reduce_peers_ns: int
    gather_turn_ns: int
    reduce_turn_ns: int
    gather_transfer_ns: int
    reduce_transfer_ns: int
    gather_finish_ns: int
    reduce_finish_ns: int
    reduce_received_bytes: int
    reduce_resent: int
    reduce_refused: int
    switch_ops: int
    direct_ops: int
    fallbacks: int
    chunks_mismatched: int
    sends_refused: int
    sends_offline: int
    sends_too_large: int
    warnings: int
    reduce_dropped: int
    chunks_relayed: int
    shared_ops: int
    node_sent_bytes: int
    node_received_bytes: int
    device_ops: int
    device_out_bytes: int
    device_in_bytes: int
    device_made: int
    chunks_misplaced: int
    gather_lent_bytes: int
    registrations: int
    registrations_refused: int
    chunks_read: int
    chunks_read_bytes: int
    message_ops: int
    message_sent_bytes: int
    message_received_bytes: int
