// `soma mcp` as real MCP clients use it: real daemon, real python kernel. SOMA names the program.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, realpathSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { connect, eras, read } from './clients.mjs';

const soma = process.env.SOMA;
assert.ok(soma, 'SOMA must name the program');

const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

for (const [name, kind] of Object.entries(eras)) {
  describe(name, () => {
    const home = realpathSync(mkdtempSync(join(tmpdir(), 'soma-interop-')));
    const folder = realpathSync(mkdtempSync(join(tmpdir(), 'soma-interop-ws-')));
    const env = { PATH: process.env.PATH, HOME: home, SOMA_HOME: home };
    const here = (more) => ({ soma, home, folder, ...more });
    after(() => {
      execFileSync(soma, ['stop', '--kernels'], { env, stdio: 'ignore' });
      rmSync(home, { recursive: true, force: true });
      rmSync(folder, { recursive: true, force: true });
    });

    test('tools are listed with their schemas', async (t) => {
      const c = await connect(t, kind, here());
      if (name.startsWith('stateless')) assert.equal(c.era, '2026-07-28');
      const { tools } = await c.client.listTools();
      assert.deepEqual(tools.map((t) => t.name).sort(), ['python_execute', 'python_interrupt', 'python_job_stop', 'python_jobs', 'python_output', 'python_result']);
      const execute = tools.find((t) => t.name === 'python_execute');
      assert.deepEqual(Object.keys(execute.inputSchema.properties).sort(), ['code', 'timeout']);
      assert.deepEqual(execute.inputSchema.required, ['code']);
    });

    test('output, value, errors and bad arguments', async (t) => {
      const c = await connect(t, kind, here());
      const good = read(await c.run('x = 41\nprint("printed")\nx + 1'));
      assert.deepEqual([good.status, good.value, good.output, good.failed], ['ok', '42', 'printed', false]);
      const bad = read(await c.run('1/0'));
      assert.deepEqual([bad.status, bad.error, bad.failed], ['error', 'ZeroDivisionError', true]);
      assert.match(bad.output, /File "<cell>", line 1/);
      for (const args of [{}, { code: '  ' }, { code: '1', timeout: -1 }, { code: '1', timeout: 3601 }, { code: 1 }]) {
        const refused = await c.call('python_execute', args).then((r) => r.isError === true, () => true);
        assert.ok(refused, JSON.stringify(args));
      }
    });

    test('a client that dies and comes back finds its names', async (t) => {
      const first = await connect(t, kind, here());
      await first.run('kept = list(range(7))');
      process.kill(first.pid, 'SIGKILL');
      await first.closed;
      const second = await connect(t, kind, here());
      assert.equal(read(await second.run('sum(kept)')).value, '21');
    });

    test('a daemon that is killed while code runs loses nothing', async (t) => {
      const c = await connect(t, kind, here());
      const marks = join(folder, 'marks');
      const running = c.run(`import asyncio\nopen(${JSON.stringify(marks)}, "a").write("once\\n")\nfor n in range(30):\n    await asyncio.sleep(0.1)\nprint(n)\nkept[-1]`);
      const status = () => JSON.parse(execFileSync(soma, ['status', '-o', 'json'], { env }));
      process.kill(status().pid, 'SIGKILL');
      const result = read(await running);
      assert.deepEqual([result.status, result.value, result.output], ['ok', '6', '29']);
      assert.equal(readFileSync(marks, 'utf8'), 'once\n');
    });

    test('code that does not end soon runs on and is asked for', async (t) => {
      const c = await connect(t, kind, here({ args: ['--wait', '1s'] }));
      const left = read(await c.run('print("begun", flush=True)\ngate = asyncio.Event()\nawait gate.wait()\n"done"'));
      assert.equal(left.status, 'running');
      const cell = left.note.match(/cell (\S+) runs on/)[1];
      assert.equal(read(await c.call('python_result', { cell })).status, 'running');
      assert.equal(read(await c.run('gate.set()')).status, 'ok');
      const end = read(await c.call('python_result', { cell, wait: 20 }));
      assert.deepEqual([end.status, end.value, end.output], ['ok', "'done'", 'begun']);

      const stuck = read(await c.run('await asyncio.Event().wait()'));
      const other = stuck.note.match(/cell (\S+) runs on/)[1];
      assert.equal(stuck.status, 'running');
      await c.call('python_interrupt', { cell: other });
      assert.equal(read(await c.call('python_result', { cell: other, wait: 20 })).status, 'interrupted');

      const news = await c.run('await asyncio.sleep(1.2)');
      const third = read(news).note.match(/cell (\S+) runs on/)[1];
      let heard = '';
      while (!heard.includes(`cell ${third} has ended (status=ok`)) heard += (await c.run('await asyncio.sleep(0.1)')).content[0].text;
      assert.equal((await c.call('python_result', { cell: 'none' })).isError, true);
    });

    test('a call that the client cancels interrupts its cell', async (t) => {
      const c = await connect(t, kind, here());
      const stop = new AbortController();
      const call = c.call('python_execute', { code: 'mark = "begun"\nawait asyncio.Event().wait()' }, { signal: stop.signal });
      for (let seen; seen !== "'begun'";) seen = read(await c.run('globals().get("mark")')).value;
      stop.abort();
      await assert.rejects(call);
      for (let live; live !== '1';) live = read(await c.run('len([t for t in asyncio.all_tasks() if t.get_name().startswith("cell ")])')).value;
    });

    test('pages of a large output, to the last byte', async (t) => {
      const c = await connect(t, kind, here());
      const result = await c.run('for n in range(20000):\n    print("line", n)');
      const first = read(result);
      assert.equal(first.truncated, "the output has 208890 bytes");
      assert.match(first.output, /^line 0\n/);
      assert.match(first.output, /line 19999$/);
      let text = '';
      for (let offset = 0, end = false; !end;) {
        const page = (await c.call('python_output', { id: first.cell_id, offset, limit: 65536 })).content[0].text;
        const cut = page.indexOf('\n');
        const head = JSON.parse(page.slice(0, cut));
        text += page.slice(cut + 1);
        ({ next: offset, end } = head);
      }
      assert.equal(text, Array.from({ length: 20000 }, (_, n) => `line ${n}\n`).join(''));
    });

    test('images come as image content', async (t) => {
      const c = await connect(t, kind, here());
      const result = await c.run(`show_image(base64.b64decode("${pixel}"))`);
      const image = result.content.find((part) => part.type === 'image');
      assert.deepEqual([image.mimeType, image.data], ['image/png', pixel]);
    });

    test('jobs are listed, read and stopped', async (t) => {
      const c = await connect(t, kind, here());
      assert.equal((await c.run('job = run("echo out; exec sleep 600")\nfor _ in range(600):\n    if job.tail(): break\n    await asyncio.sleep(0.05)')).isError ?? false, false);
      const jobs = (await c.call('python_jobs')).content[0].text.split('\n').map((line) => JSON.parse(line));
      assert.deepEqual([jobs[0].state, jobs[0].command], ['running', 'echo out; exec sleep 600']);
      const page = (await c.call('python_output', { id: jobs[0].id })).content[0].text;
      assert.equal(page.slice(page.indexOf('\n') + 1), 'out\n');
      await c.call('python_job_stop', { job: jobs[0].id });
      const ended = (await c.call('python_jobs')).content[0].text.split('\n').map((line) => JSON.parse(line));
      assert.equal(ended[0].state, 'exited');
      assert.equal((await c.call('python_job_stop', { job: 'none' })).isError, true);
    });
  });
}
