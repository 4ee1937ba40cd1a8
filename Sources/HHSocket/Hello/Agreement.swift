/// What the two ends of a connection have agreed on by hello. Of a connection without hello there is none.
package struct Agreement: Hashable, Sendable {
    /// The version of the protocol that both speak; the first is 1.
    package var version: UInt32
    /// What both use beyond it, by the names that stand in hello.
    package var features: Set<String>
    /// The flags that types may have from now on, in either direction: ``FrameType/metadataFlag`` and
    /// ``FrameType/compressionFlag``.
    package var flags: UInt32

    package init(version: UInt32, features: Set<String>, flags: UInt32) {
        self.version = version
        self.features = features
        self.flags = flags
    }
}
