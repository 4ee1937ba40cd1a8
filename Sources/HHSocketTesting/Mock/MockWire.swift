// SPDX-License-Identifier: Apache-2.0

/// A protocol that mock servers speak: the types of what they receive and send.
///
/// This module has the wires ``FrameWire``, ``MessageWire``, ``LineWire`` and ``STOMPWire`` with a ``MockPeer`` each,
/// and ``OpeningWire``, whose reactions are ``MockOpening``. Other types cannot usefully conform: their servers would
/// have no initializer.
public protocol MockWire: Sendable {
    /// The type of what a server receives and records.
    associatedtype Received: Sendable
    /// The type of what rules distinguish, such as the text of a line; `Never` without rules.
    associatedtype Key: Hashable & Sendable = Never
    /// The type of what reactions send, besides raw bytes.
    associatedtype Output: Sendable
}

/// A wire whose servers can open WebSockets.
public protocol WebSocketWire: MockWire {}
