/// The units of a read, which the receiver pulls.
package struct Batch<Language: LinkLanguage>: ~Copyable {
    let link: Link<Language>
    /// The number of units that were pulled.
    var count = 0

    init(_ link: Link<Language>) {
        self.link = link
    }

    /// Whether the receiver may go on: the link is open, and what was sent meanwhile need not leave
    /// first. What is not pulled comes again, with the next batch.
    package var goesOn: Bool { self.link.hot.goesOn }

    /// The next unit; nil where more bytes are needed, or where the receiver may not go on.
    ///
    /// - Throws: ``LinkError`` when the bytes make no sense.
    package mutating func next() throws(LinkError) -> Language.Incoming? {
        guard self.goesOn, let unit = try self.link.hot.language.next() else { return nil }
        self.count += 1
        return unit
    }
}
