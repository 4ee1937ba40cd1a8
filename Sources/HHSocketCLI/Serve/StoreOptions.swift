// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketServer
import HHSocketServerTransfers

/// The store of a server, and its limits. Options that are not given have the defaults of `TransferLimits`.
struct StoreOptions: ParsableArguments {
    @Option(
        help: .value(
            "folder",
            """
            Keep the files of `put` and `get` in this folder: the file of an id is FOLDER/ID. The folder is created if its \
            parent exists. Every client may put and get every file.
            """
        )
    )
    var store: String?

    @Option(number: "The largest number of unfinished files of one client. (default: 16)")
    var maxUnfinishedPerClient: Int?

    @Option(size: "The largest total size of these files once complete, and so of a single file. (default: 8G)")
    var maxUnfinishedBytesPerClient: Int?

    @Option(number: "The largest number of unfinished files of all clients. (default: 1024)")
    var maxUnfinished: Int?

    @Option(size: "The largest total size of these files. (default: 64G)")
    var maxUnfinishedBytes: Int?

    @Option(duration: "The time without progress after which an unfinished file is removed. (default: 7d)")
    var unfinishedLifetime: Duration?

    @Option(help: TransferTypesArgument.help, transform: TransferTypesArgument.parse)
    var transferTypes: TransferTypes?

    func validate() throws {
        let options: [(name: String, isGiven: Bool)] = [
            ("--max-unfinished-per-client", self.maxUnfinishedPerClient != nil),
            ("--max-unfinished-bytes-per-client", self.maxUnfinishedBytesPerClient != nil),
            ("--max-unfinished", self.maxUnfinished != nil),
            ("--max-unfinished-bytes", self.maxUnfinishedBytes != nil),
            ("--unfinished-lifetime", self.unfinishedLifetime != nil),
            ("--transfer-types", self.transferTypes != nil),
        ]
        if self.store == nil, let option = options.first(where: \.isGiven) {
            throw ValidationError("\(option.name) requires --store.")
        }
        for (name, value) in [
            ("--max-unfinished-per-client", self.maxUnfinishedPerClient), ("--max-unfinished", self.maxUnfinished),
        ] {
            if let value, value < 1 { throw ValidationError("\(name) is 1 or more, not \(value).") }
        }
    }

    /// Refuses a format in which files cannot be transferred.
    func validate(in format: WireFormat) throws {
        guard self.store != nil else { return }
        guard format.supportsHello else {
            throw ValidationError(
                "--store: the format \(format) cannot have hello, which streams need: \(WireFormat.helloNeeds)."
            )
        }
        try TransferTypesArgument.validate(self.types, in: format)
    }

    private var types: TransferTypes { self.transferTypes ?? TransferTypes() }

    private var limits: TransferLimits {
        var limits = TransferLimits()
        if let count = self.maxUnfinishedPerClient { limits.maximumFilesPerIdentity = count }
        if let bytes = self.maxUnfinishedBytesPerClient { limits.maximumBytesPerIdentity = UInt64(bytes) }
        if let count = self.maxUnfinished { limits.maximumFiles = count }
        if let bytes = self.maxUnfinishedBytes { limits.maximumBytes = UInt64(bytes) }
        if let time = self.unfinishedLifetime { limits.lifetime = time }
        return limits
    }

    /// Registers the store, if one is given.
    ///
    /// - Throws: `ExitCode.failure` if the folder cannot be used, which is reported on stderr.
    func register(on router: inout Router) throws(ExitCode) {
        guard let path = self.store else { return }
        do throws(TransferError) {
            let store = try FolderTransferStore(path: path, limits: self.limits)
            router.register(TransferService(store: store, types: self.types) { _, _ in })
        } catch {
            StandardError.report(error)
            throw ExitCode.failure
        }
    }
}
