// kafkajs against a broker: kafkajs.js BOOTSTRAP
'use strict'
const { spawn } = require('child_process')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, Partitioners, logLevel, AssignerProtocol } = require('kafkajs')
const Snappy = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const { ZstdCodec } = require('zstd-codec')

const NAME = 'node/kafkajs'
// How many replicas the topics have: --cluster asks for 3.
const REPLICAS = Number(process.env.COMPAT_REPLICAS || 1)
const FULL = Boolean(process.env.COMPAT_FULL)
const RUN = Math.floor(Math.random() * (1 << 24)).toString(16).padStart(6, '0')
const BASE = (Math.floor(Date.now() / 1000) - 3600) * 1000
const kafka = new Kafka({ clientId: 'compat', brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING, retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 } })
const admin = kafka.admin({ retry: { initialRetryTime: 50, retries: 2 } })
let failed = false

// ---- checks ----

const topicName = what => `node-kafkajs-${what}-${RUN}`
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const text = value => JSON.stringify(value, (_, v) => (v && v.type === 'Buffer' ? Buffer.from(v.data).toString('latin1') : typeof v === 'bigint' ? String(v) : v))

async function check (what, body) {
  if (!what.includes(process.env.COMPAT_ONLY || '')) return
  try {
    await body()
    console.log(`ok  ${NAME} ${what}`)
  } catch (error) {
    console.error(error)
    console.log(`FAIL ${NAME} ${what}: ${String(error).replace(/\s+/g, ' ').slice(0, 300)}`)
    failed = true
  }
}
async function checkWithRestart (what, body) {
  if (!process.env.OTTLA_RESTART) console.log(`skip ${NAME} ${what}: OTTLA_RESTART names no command that restarts the broker`)
  else await check(what, body)
}
const restartBroker = how => new Promise((resolve, reject) => {
  spawn(process.env.OTTLA_RESTART, [how], { stdio: ['ignore', 'ignore', 'inherit'] })
    .on('exit', status => (status === 0 ? resolve() : reject(new Error(`the restart exited with ${status}`))))
})
function equal (got, wanted, what) {
  if (text(got) !== text(wanted)) throw new Error(`${what}: got ${text(got)?.slice(0, 200)}, wanted ${text(wanted)?.slice(0, 200)}`)
}
async function eventually (what, condition, seconds = 20) {
  const end = Date.now() + seconds * 1000
  for (;;) {
    const got = await condition()
    if (got) return got
    if (Date.now() > end) throw new Error(`${what}: not within ${seconds} s`)
    await sleep(30)
  }
}
async function raises (word, body) {
  try { await body() } catch (error) {
    if (!`${error.type} ${error.message} ${text(error.errors)} ${text(error.groups)}`.includes(word)) throw new Error(`failed with ${error}, wanted ${word}`)
    return
  }
  throw new Error(`succeeded, wanted ${word}`)
}

// ---- records ----

const key = i => (i % 10 === 3 ? null : Buffer.from(`key-${i}`))
const value = i => (i % 10 === 7 ? null : Buffer.from(`value-${i}-` + 'x'.repeat(i * 37 % 500)))
const headers = i => (i % 3 === 0 ? { n: [String(i), 'again'], empty: '' } : {})
const range = (from, to) => Array.from({ length: to - from }, (_, n) => from + n)

async function topic (what, partitions, configs = {}) {
  const name = topicName(what)
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic: name, numPartitions: partitions, replicationFactor: REPLICAS, configEntries: Object.entries(configs).map(([name, value]) => ({ name, value })) }] })
  return name
}

class Sender {
  // `separately`: a send for each partition. One to several brokers resolves in kafkajs 2.2.4 though a part of it was sent to nobody: what a
  // broker refused because its leader moved to one that has answered already is not asked of that one again (tulios/kafkajs#1798).
  constructor (producer, topic, partitions, separately = false) { Object.assign(this, { producer, topic, partitions, separately, acknowledged: new Map() }) }
  // One request per call; the records are acknowledged when it returns.
  async send (from, to, compression = CompressionTypes.None, acks = -1) {
    const numbers = range(from, to)
    const messages = numbers.map(i => ({ key: key(i), value: value(i), headers: headers(i), partition: i % this.partitions, timestamp: String(BASE + i) }))
    for (const some of this.separately ? range(0, this.partitions).map(p => messages.filter(m => m.partition === p)) : [messages]) {
      if (some.length === 0) continue
      const results = await this.producer.send({ topic: this.topic, compression, acks, messages: some })
      for (const { partition, baseOffset } of results) {
        let offset = Number(baseOffset)
        for (const i of numbers) if (i % this.partitions === partition) this.acknowledged.set(i, `${partition}@${offset++}`)
      }
    }
    return this
  }
}
async function producer (options = {}) {
  const p = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, ...options })
  await p.connect()
  return p
}

// Exactly the records from..to, each at its acknowledged offset, in offset order per partition, unchanged.
function verify (records, from, to, sender) {
  const wanted = new Map(range(from, to).map(i => [sender.acknowledged.get(i), i]))
  const last = new Map()
  for (const { partition, message: m } of records) {
    const place = `${partition}@${m.offset}`
    if (!wanted.has(place)) throw new Error(`a record at ${place} that nobody was acknowledged, or twice`)
    const i = wanted.get(place)
    wanted.delete(place)
    const h = Object.fromEntries(Object.entries(m.headers || {}).map(([k, v]) => [k, Array.isArray(v) ? v.map(String) : String(v)]))
    equal([m.key, m.value, h, m.timestamp, partition], [key(i), value(i), headers(i), String(BASE + i), i % sender.partitions], `record ${i}`)
    if (last.has(partition) && last.get(partition) >= Number(m.offset)) throw new Error(`offset ${m.offset} after ${last.get(partition)} in partition ${partition}`)
    last.set(partition, Number(m.offset))
  }
  equal(wanted.size, 0, 'records that were not received')
}
const byOffset = records => [...records].sort((a, b) => Number(a.message.offset) - Number(b.message.offset))

// A group member that consumes, and commits what it handled when told or when it leaves.
class Member {
  // `goesOn`: a commit that fails may have been done, so records count as received before it, and may be received again; and a consumer that
  // ended for good is made anew: kafkajs 2.2.4 ends where a commit meets a rebalance (ILLEGAL_GENERATION), whatever restartOnFailure says.
  static async join (group, topic, { goesOn = false, ...options } = {}) {
    const m = new Member()
    Object.assign(m, { group, topic, goesOn, options, received: [], assigned: [], joins: 0, left: false })
    await m.begin()
    return m
  }

  async begin () {
    const { group, topic, goesOn, options } = this
    const consumer = this.consumer = kafka.consumer({ groupId: group, sessionTimeout: 10000, heartbeatInterval: 300, rebalanceTimeout: 10000, maxWaitTimeInMs: 100, retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 }, ...options })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { this.assigned = payload.memberAssignment[topic] || []; this.joins++ })
    consumer.on(consumer.events.REBALANCING, () => { this.assigned = [] })
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      console.error('crash', payload.restart, String(payload.error))
      if (goesOn && !payload.restart && !this.left) this.begin().catch(error => console.error('begin', String(error)))
    })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      partitionsConsumedConcurrently: 4,
      eachBatchAutoResolve: false,
      // Each batch is committed at once, so that a rebalance repeats nothing.
      eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
        if (!isRunning() || isStale()) return
        const records = batch.messages.map(message => ({ partition: batch.partition, message }))
        const next = String(Number(batch.lastOffset()) + 1)
        if (goesOn) this.received.push(...records)
        await consumer.commitOffsets([{ topic, partition: batch.partition, offset: next }])
        if (!goesOn) this.received.push(...records)
        resolveOffset(batch.lastOffset())
        await heartbeat()
      }
    })
  }

  async leave () {
    this.left = true
    await this.consumer.disconnect()
  }
}

// Reads count records of all partitions from the beginning, with a group of its own.
async function readAll (topic, count) {
  const m = await Member.join(topic + '-reader-' + Math.random(), topic)
  await eventually(`${count} records`, () => m.received.length >= count, 30)
  await m.leave()
  return m.received
}

// ---- the checks ----

const configOf = async (name, key) => (await admin.describeConfigs({ includeSynonyms: true, resources: [{ type: ConfigResourceTypes.TOPIC, name, configNames: [key] }] })).resources[0].configEntries[0].configValue

async function topics () {
  const name = await topic('topics', 3, { 'retention.ms': '7200000', 'cleanup.policy': 'compact' })
  equal(await admin.createTopics({ topics: [{ topic: name, numPartitions: 1 }] }), false, 'creating it again')
  await raises('INVALID_REPLICATION_FACTOR', () => admin.createTopics({ topics: [{ topic: name + '-rf', numPartitions: 1, replicationFactor: 9 }] }))
  await raises('INVALID_TOPIC_EXCEPTION', () => admin.createTopics({ topics: [{ topic: 'bad name', numPartitions: 1 }] }))
  const { topics: [described] } = await admin.fetchTopicMetadata({ topics: [name] })
  equal(described.partitions.map(p => p.partitionId).sort(), [0, 1, 2], 'partitions')
  equal((await admin.listTopics()).includes(name), true, 'the topic is listed')
  equal([await configOf(name, 'retention.ms'), await configOf(name, 'cleanup.policy')], ['7200000', 'compact'], 'configs')
  await admin.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] })
  await eventually('all configs to be replaced', async () => await configOf(name, 'retention.ms') === '3600000' && await configOf(name, 'cleanup.policy') === 'delete')
  await admin.createPartitions({ topicPartitions: [{ topic: name, count: 5 }] })
  await eventually('5 partitions', async () => (await admin.fetchTopicMetadata({ topics: [name] })).topics[0].partitions.length === 5)
  const p = await producer()
  equal((await p.send({ topic: name, messages: [{ key: 'key', value: '', partition: 4 }] }))[0].baseOffset, '0', 'a record to a new partition')
  await p.disconnect()
  await admin.deleteTopics({ topics: [name] })
  await eventually('the topic to be gone', async () => !(await admin.listTopics()).includes(name))
}

async function cluster () {
  const described = await admin.describeCluster()
  equal([described.brokers.length >= 1, described.controller !== null, described.clusterId.length > 0], [true, true, true], 'the cluster')
}

async function produceConsume (what, compression) {
  const name = await topic(what, 3)
  const p = await producer()
  const sender = new Sender(p, name, 3)
  const count = FULL ? 20000 : 2000
  for (let i = 0; i < count; i += 200) await sender.send(i, i + 200, compression)
  verify(await readAll(name, count), 0, count, sender)
  const offsets = (await admin.fetchTopicOffsets(name)).sort((a, b) => a.partition - b.partition)
  equal(offsets.map(o => [Number(o.low), Number(o.high)]), [0, 1, 2].map(p => [0, range(0, count).filter(i => i % 3 === p).length]), 'offsets')
  await p.disconnect()
}

async function idempotent () {
  const name = await topic('idempotent', 3)
  const p = await producer({ idempotent: true, maxInFlightRequests: 1 })
  const sender = new Sender(p, name, 3)
  for (let i = 0; i < 1000; i += 50) await sender.send(i, i + 50, CompressionTypes.GZIP)
  verify(await readAll(name, 1000), 0, 1000, sender)
  await p.disconnect()
}

async function acks () {
  const name = await topic('acks', 1)
  const p = await producer()
  for (const acks of [0, 1, -1]) await p.send({ topic: name, acks, messages: range(0, 100).map(i => ({ value: `${acks} ${i}` })) })
  const records = await readAll(name, 300)
  equal(records.map(r => String(r.message.value)).sort(), [0, 1, -1].flatMap(a => range(0, 100).map(i => `${a} ${i}`)).sort(), 'records')
  await p.disconnect()
}

async function offsetsByTime () {
  const name = await topic('times', 1)
  const p = await producer()
  const sender = new Sender(p, name, 1)
  for (let i = 0; i < 500; i += 50) await sender.send(i, i + 50, CompressionTypes.GZIP)
  for (const i of [0, 1, 49, 50, 333, 499]) equal((await admin.fetchTopicOffsetsByTimestamp(name, BASE + i))[0].offset, String(i), `the offset at ${i}`)
  equal((await admin.fetchTopicOffsetsByTimestamp(name, BASE + 9999))[0].offset, '500', 'after the last')
  await p.disconnect()
}

async function seek () {
  const name = await topic('seek', 1)
  const p = await producer()
  const sender = await new Sender(p, name, 1).send(0, 600)
  const m = await Member.join(name, name)
  await eventually('600 records', () => m.received.length >= 600)
  verify(m.received, 0, 600, sender)
  for (const start of [500, 0, 317, 599]) {
    m.received = []
    m.consumer.seek({ topic: name, partition: 0, offset: String(start) })
    await eventually(`the records from ${start} on`, () => m.received.length >= 600 - start)
    verify(m.received, start, 600, sender)
  }
  m.received = []
  m.consumer.seek({ topic: name, partition: 0, offset: '5000' }) // out of range: from the beginning again
  await eventually('all records after a seek out of range', () => m.received.length >= 600)
  await m.leave()
  await p.disconnect()
}

async function rebalance () {
  const name = await topic('group', 4)
  const p = await producer()
  const sender = new Sender(p, name, 4)
  await sender.send(0, 400)
  const first = await Member.join(name, name)
  await eventually('the first 400 records', () => first.assigned.length === 4 && first.received.length >= 400)
  const second = await Member.join(name, name)
  await eventually('two partitions each', () => first.assigned.length === 2 && second.assigned.length === 2)
  await sender.send(400, 800)
  await eventually('800 records', () => first.received.length + second.received.length >= 800)
  equal(second.received.length, 200, 'records of the second member')
  const { groups: [described] } = await admin.describeGroups([name])
  equal([described.state, described.members.length, described.protocolType], ['Stable', 2, 'consumer'], 'the described group')
  const assignment = AssignerProtocol.MemberAssignment.decode(described.members[0].memberAssignment)
  equal(assignment.assignment[name].length, 2, "a member's assignment")
  await second.leave()
  await eventually('all partitions to be with the first again', () => first.assigned.length === 4)
  await sender.send(800, 1200)
  await eventually('1200 records', () => first.received.length + second.received.length >= 1200)
  await first.leave()
  verify(byOffset([...first.received, ...second.received]), 0, 1200, sender)
  // What was committed is where the next member starts.
  await sender.send(1200, 1300)
  const third = await Member.join(name, name)
  await eventually('the last 100 records', () => third.received.length >= 100)
  await third.leave()
  verify(third.received, 1200, 1300, sender)
  await p.disconnect()
}

async function commits () {
  const name = await topic('commits', 2)
  const p = await producer()
  await new Sender(p, name, 2).send(0, 100)
  await admin.setOffsets({ groupId: name, topic: name, partitions: [{ partition: 0, offset: '20' }, { partition: 1, offset: '30' }] })
  const m = await Member.join(name, name)
  await eventually('the rest', () => m.received.length >= 50)
  equal(m.received.map(r => `${r.partition}@${r.message.offset}`).filter(x => x === '0@20' || x === '1@30').sort(), ['0@20', '1@30'], 'resumed at')
  equal(m.received.length, 50, 'records')
  await raises('NON_EMPTY_GROUP', () => admin.deleteGroups([name]))
  await m.leave()
  equal((await admin.listGroups()).groups.filter(g => g.groupId === name).map(g => g.protocolType), ['consumer'], 'the listed group')
  const [offsets] = await admin.fetchOffsets({ groupId: name, topics: [name] })
  equal(offsets.partitions.map(o => o.offset), ['50', '50'], 'committed offsets')
  await admin.resetOffsets({ groupId: name, topic: name, earliest: true })
  equal((await admin.fetchOffsets({ groupId: name, topics: [name], resolveOffsets: true }))[0].partitions.map(o => o.offset), ['0', '0'], 'reset offsets')
  await admin.deleteGroups([name])
  equal((await admin.listGroups()).groups.filter(g => g.groupId === name), [], 'the deleted group in the list')
  await p.disconnect()
}

async function deleteRecords () {
  const name = await topic('delete-records', 1)
  const p = await producer()
  const sender = await new Sender(p, name, 1).send(0, 100)
  await admin.fetchTopicOffsets(name) // teaches the client the partition's leader
  await admin.deleteTopicRecords({ topic: name, partitions: [{ partition: 0, offset: '40' }] })
  verify(await readAll(name, 60), 40, 100, sender)
  equal((await admin.fetchTopicOffsets(name))[0].low, '40', "the log's start")
  await p.disconnect()
}

// The broker restarts under an idempotent producer and a group member. In the log nothing is lost or duplicated; the member,
// which joins again when its connection breaks, misses nothing.
async function restart (how) {
  const name = await topic('restart-' + how, 3)
  const p = await producer({ idempotent: true, maxInFlightRequests: 1, retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 200 } })
  const sender = new Sender(p, name, 3, REPLICAS > 1)
  await sender.send(0, 600)
  const m = await Member.join(name, name, { goesOn: true, sessionTimeout: 45000, rebalanceTimeout: 45000 })
  await eventually('600 records before the restart', () => m.received.length >= 600)
  let stop = false
  let sent = 600
  const load = (async () => {
    for (; !stop; sent += 30) {
      await sender.send(sent, sent + 30)
      await sleep(5)
    }
  })()
  await restartBroker(how)
  await sleep(300)
  stop = true
  await load
  const different = () => [...new Map(m.received.map(r => [`${r.partition}@${r.message.offset}`, r])).values()]
  // A connection that breaks makes it join as a new member; the former one is waited for, once for each broker that restarted.
  await eventually('the records after the restart', () => different().length >= sent, 60 * REPLICAS)
  await m.leave()
  verify(byOffset(different()), 0, sent, sender)
  verify(await readAll(name, sent), 0, sent, sender)
  const [offsets] = await admin.fetchOffsets({ groupId: name, topics: [name] })
  equal(offsets.partitions.reduce((sum, o) => sum + Number(o.offset), 0), sent, 'committed offsets')
  await p.disconnect()
}

async function main () {
  CompressionCodecs[CompressionTypes.Snappy] = Snappy
  CompressionCodecs[CompressionTypes.LZ4] = () => ({ compress: e => lz4.compressFrame(e.buffer), decompress: b => lz4.decompressFrame(b) })
  const zstd = await new Promise(resolve => ZstdCodec.run(z => resolve(new z.Streaming())))
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({ compress: async e => Buffer.from(zstd.compress(e.buffer)), decompress: async b => Buffer.from(zstd.decompress(b)) })
  await admin.connect()
  await check('topics', topics)
  await check('cluster', cluster)
  for (const [what, codec] of Object.entries({ none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD })) {
    await check(`produce-consume ${what}`, () => produceConsume(what, codec))
  }
  await check('idempotent', idempotent)
  await check('acks 0 1 all', acks)
  await check('offsets-by-time', offsetsByTime)
  await check('seek', seek)
  await check('rebalance', rebalance)
  await check('commits-and-groups', commits)
  await check('delete-records', deleteRecords)
  for (const how of ['term', 'kill']) await checkWithRestart(`restart ${how}`, () => restart(how))
  process.exit(failed ? 1 : 0)
}
main().catch(error => {
  console.log(`FAIL ${NAME} runs: ${String(error).replace(/\s+/g, ' ')}`)
  process.exit(1)
})
