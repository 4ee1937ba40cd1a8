// SPDX-License-Identifier: Apache-2.0
/// The result of hello, on which both ends of a connection have agreed. A connection without hello has none.
package struct Agreement: Hashable, Sendable {
    /// The version of the protocol that both ends speak; the first is 1.
    package var version: UInt32
    /// The features that both ends use, by their names in hello.
    package var features: Set<String>
    /// The flags that types may have after hello, in either direction: ``FrameType/metadataFlag``,
    /// ``FrameType/compressionFlag`` and ``FrameType/continuesFlag``.
    package var flags: UInt32
    /// The windows and the number of streams, where hello agreed on streams.
    package var streams: StreamTerms?

    package init(version: UInt32, features: Set<String>, flags: UInt32, streams: StreamTerms? = nil) {
        self.version = version
        self.features = features
        self.flags = flags
        self.streams = streams
    }
}
