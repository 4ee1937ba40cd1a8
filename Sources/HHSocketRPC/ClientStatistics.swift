// SPDX-License-Identifier: Apache-2.0
/// Counts of events that no single call reports, from the client's beginning.
public struct ClientStatistics: Sendable, Hashable {
    /// Answers to calls that had timed out or been cancelled; dropped.
    public package(set) var lateResponses = 0
    /// Further answers to calls that had been answered; dropped.
    public package(set) var duplicateResponses = 0
    /// Answers to serials that were never sent; dropped.
    public package(set) var unknownResponses = 0
    /// Frames with a wrong checksum.
    public package(set) var checksumFailures = 0
    /// Times that bytes were no frame, in formats whose frames end with separators.
    public package(set) var malformedFrames = 0
    /// Go-away frames received. After the first on a connection they have no effect.
    public package(set) var goAways = 0
    /// Go-away frames that could not be parsed; the client failed over all the same.
    public package(set) var malformedGoAways = 0
    /// The number of times that a call was sent again because a server answered that it is about to end (504).
    public package(set) var resentCalls = 0
    /// Streams opened, each time that one is opened again included.
    public package(set) var openedStreams = 0
    /// Items of streams that were handed over to be sent.
    public package(set) var sentItems = 0
    /// The number of received items of streams.
    public package(set) var receivedItems = 0
    /// Pushes received.
    public package(set) var pushes = 0
    /// Pushes that a slow subscriber lost by its ``PushBufferingPolicy``, counted once for each subscriber. Pushes that
    /// still wait when a subscription ends are not counted.
    public package(set) var droppedPushes = 0
    /// The number of times that a handler of pushes threw an error.
    public package(set) var failedPushHandlers = 0
    /// The number of pushes that were omitted from a sequence of messages because they could not be decoded, or that
    /// were dropped because their envelope could not be opened.
    public package(set) var malformedPushes = 0
}
